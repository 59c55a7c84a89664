// What train.lr_scheduler_params says: whether train.lr_scheduler reads it, and whether it fits into the run.
#pragma once

#include <string>

#include "config/config.h"

namespace lh {

// Throws lh::Error(Code::config), which begins with `source`, where the schedule does not read a parameter, or a ratio
// is above 1: the rate would move otherwise than the one who wrote it thinks.
void check_schedule_params(const TrainSection& train, const std::string& source = "");
// The same for the schedule of each phase.
void check_schedules(const TrainSection& train);

// Steps of a part of the schedule, "warmup" or "decay": as many as `what`_steps says, or `what`_ratio of all.
double steps_of_part(const TrainSection& train, const std::string& what);
// Warns where the rate never comes up to lr, in the run or in a phase, since its rise and fall are longer than that: as
// in other programs it is no error. source: of the parameters, "file:line:column: ".
void warn_of_long_schedules(const TrainSection& train, const std::string& source);

}  // namespace lh
