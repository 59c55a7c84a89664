// Uniform and normal numbers that trained tensors begin with.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.h"
#include "passes/adapter_rule.h"

namespace lh {

// A tensor that begins with uniform or normal numbers. Its own are those of the stream of (seed, number).
struct NumberStream {
  uint64_t number = 0;
  Shape shape;
  InitialValue initial;
};

// Gives the tensors to `take`, one after the other, float32 in the order of files. They are made by several threads,
// which have no influence on the values; no more of them than 64 MiB, or one tensor, are in memory at a time.
void make_numbers(uint64_t seed, const std::vector<NumberStream>& streams,
                  const std::function<void(uint64_t number, const HostTensor& values)>& take);

}  // namespace lh
