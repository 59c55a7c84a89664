// How the gradients of a step are cut into pieces that travel while the backward pass goes on: buckets of tensors in
// the order in which it ends them, each in as many parts as there are ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lh {

// Elements of a section of the trained tensors.
struct GradientRange {
  int64_t begin = 0, elements = 0;
};

struct GradientBucket {
  std::vector<GradientRange> ranges;
  int64_t elements = 0;
  std::size_t after = 0;  // so many of the tensors have to be there
  // What one of the ranks adds up. All together are the bucket.
  std::vector<GradientRange> part(int64_t rank, int64_t ranks) const;
  // The same as elements of the bucket.
  GradientRange place(int64_t rank, int64_t ranks) const;
};

// `tensors` in the order in which they come; those that lie side by side become one range.
std::vector<GradientBucket> gradient_buckets(const std::vector<GradientRange>& tensors, int64_t most_elements);

// The most elements that a part of a bucket of so many can have.
int64_t most_in_part(int64_t elements, int64_t ranks);

}  // namespace lh
