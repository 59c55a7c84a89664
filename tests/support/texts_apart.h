// Samples of a batch whose texts differ in length, for models that are given all rows of a text and which are there.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plugin/model.h"

namespace lh::test {

// Expects of a small model, for latents of each size (height and width): every sample of a batch is what it is alone,
// however many rows there are and whatever stands in those that are not there; texts tell samples apart, whose results
// are `differ` away from each other at least; a text without a row gives numbers.
void expect_texts_apart(const Model& model, const std::vector<std::pair<int64_t, int64_t>>& sizes,
                        double differ = 1e-3);

}  // namespace lh::test
