// The number that models which were distilled from guidance are given while they are trained.
#pragma once

#include "config/config.h"
#include "plugin/recipe.h"

namespace lh {

// Below 0: none (train.bypass_guidance_embedding).
double training_guidance(const TrainSection& train, const Recipe& recipe);

}  // namespace lh
