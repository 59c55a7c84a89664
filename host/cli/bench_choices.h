// What of a step was chosen: for each kind of operation the kernels that run, with the algorithm of a product and
// whether it was timed, and those that were passed over, with the reason.
#pragma once

#include <functional>

#include "run/device.h"

namespace lh {

// Runs it once, each operation by itself, and prints a line for each kind, the longest first.
void print_choices(const Device& device, const std::function<void()>& run);

}  // namespace lh
