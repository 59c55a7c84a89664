// How a program that reduces is cut into tasks.
#pragma once

#include <array>
#include <optional>

#include "cuda/pointwise_arguments.h"
#include "cuda/pointwise_source.h"

namespace lk::cuda {

struct PointwiseReduction {
  PointwiseTasks tasks{};
  std::array<PointwiseOver, LK_POINTWISE_MAX_OUTPUTS> over{};  // by output
  std::array<bool, LK_POINTWISE_MAX_OUTPUTS> reduced{};

  int64_t parts(PointwiseOver over) const;  // that make a result
  int64_t partial(size_t output) const;     // of all its results, 0 where each has one part
};

// Nothing where the reductions are not over rows, columns or both of [outer, rows, columns], which neighbouring axes
// make that are kept and reduced alike; where these are tiny; and where there are more results to share than
// pointwise_arrivals.
std::optional<PointwiseReduction> pointwise_reduction(const PointwiseProgram& program, int64_t processors);

}  // namespace lk::cuda
