#include "diffusion/training_guidance.h"

namespace lh {

double training_guidance(const TrainSection& train, const Recipe& recipe) {
  for (const auto& [name, input] : recipe.inputs)
    if (train.bypass_guidance_embedding && input.source == InputSpec::Source::guidance) return input.value;
  return train.cfg_scale;
}

}  // namespace lh
