// The learning rate of each optimizer step. Names and numbers are those of the schedules users know from transformers.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace lh {

// Of the denoiser's adapters and of those of text encoders.
struct LearningRates {
  double denoiser, text_encoders;
};

// step counts from 0; steps past train.steps are allowed. Throws lh::Error(Code::config) for an unknown schedule.
LearningRates learning_rates(const TrainSection& train, int64_t step);

}  // namespace lh
