// The learning rate of each optimizer step. Names and numbers are those of the schedules users know from transformers.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"

namespace lh {

// `lr` is the rate that the schedule moves. step counts from 0; steps past train.steps are allowed. Throws
// lh::Error(Code::config) for an unknown schedule.
double learning_rate(const TrainSection& train, double lr, int64_t step);
// Of each group.
std::vector<double> learning_rates(const TrainSection& train, const std::vector<double>& lr, int64_t step);

}  // namespace lh
