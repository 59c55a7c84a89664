// The learning rate of each optimizer step. Names and numbers are those of the schedules users know from transformers.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace lh {

// step counts from 0; steps past train.steps are allowed. Throws lh::Error(Code::config) for an unknown schedule.
double learning_rate(const TrainSection& train, int64_t step);

}  // namespace lh
