// lora-host bench under mpirun: what it costs to train together.
#pragma once

#include "cli/options.h"
#include "world/world.h"

namespace lh {

int bench_together(const Options& options, World& world);

}  // namespace lh
