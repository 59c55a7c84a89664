// Modules one after another, several at a time: read here, computed in a thread each, taken here in their order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "core/progress.h"
#include "core/signals.h"

namespace lh {

struct Stopped : Interrupted {
  const char* what() const noexcept override { return "stopped"; }
};
// Throws Stopped after a signal: nothing was put in place yet.
inline void check_stop() {
  if (stop_requested()) throw Stopped();
}

// read(i) -> Input; compute(Input&) -> Result, which must not throw; take(i, Result). Which run at the same time has no
// influence on what is computed. `name`: of the progress bar.
template <typename Read, typename Compute, typename Take>
void in_batches(const std::string& name, size_t count, const Read& read, const Compute& compute, const Take& take) {
  using Input = decltype(read(size_t{0}));
  using Result = decltype(compute(std::declval<Input&>()));
  const auto at_once = static_cast<size_t>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
  Progress progress(name, static_cast<int64_t>(count));
  for (size_t first = 0; first < count; first += at_once) {
    const size_t end = std::min(first + at_once, count);
    std::vector<Input> inputs;
    for (size_t i = first; i < end; ++i) {
      check_stop();
      inputs.push_back(read(i));
    }
    std::vector<std::optional<Result>> results(inputs.size());
    in_threads(static_cast<int64_t>(inputs.size()), 1, [&](int64_t begin, int64_t stop) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(stop); ++i) results[i] = compute(inputs[i]);
    });
    for (size_t i = first; i < end; ++i) take(i, std::move(*results[i - first]));
    progress.update(static_cast<int64_t>(end), {});
  }
}

}  // namespace lh
