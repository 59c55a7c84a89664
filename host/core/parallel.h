// A loop over rows in several threads. Which thread takes which rows has no influence on what is computed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace lh {

// run(first, end) for ranges that make up [0, rows); each thread gets at least `least_rows`. `run` must not throw.
template <typename Run>
void in_threads(int64_t rows, int64_t least_rows, const Run& run) {
  const int64_t cores = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 16);
  const int64_t threads = std::clamp<int64_t>(rows / std::max<int64_t>(least_rows, 1), 1, cores);
  const int64_t part = (rows + threads - 1) / threads;
  std::vector<std::jthread> others;
  for (int64_t first = part; first < rows; first += part)
    others.emplace_back([&run, first, end = std::min(first + part, rows)] { run(first, end); });
  run(0, std::min(part, rows));
}

}  // namespace lh
