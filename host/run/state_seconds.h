// How much longer an update will take because its states are in host memory: a prediction, as those of predict.h are.
#pragma once

#include "run/predict.h"
#include "run/update_plan.h"

namespace lh {

// 0 where they are on the device.
double state_seconds(const UpdatePlan& update, const Rates& rates);

}  // namespace lh
