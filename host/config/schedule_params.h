// Whether train.lr_scheduler reads what train.lr_scheduler_params says.
#pragma once

#include "config/config.h"

namespace lh {

// Throws lh::Error(Code::config), which begins with `source`, where the schedule does not read a parameter: the rate
// would move otherwise than the one who wrote it thinks.
void check_schedule_params(const TrainSection& train, const std::string& source = "");
// The same for the schedule of each phase.
void check_schedules(const TrainSection& train);

}  // namespace lh
