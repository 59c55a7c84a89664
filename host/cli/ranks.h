// Commands that several processes may do together (world/world.h).
#pragma once

#include <functional>
#include <string>

#include "world/world.h"

namespace lh {

// `cuda` is the GPU of this process: as many as there are processes on the machine, unless the launcher gave it one.
std::string device_of(const std::string& asked, const World& world);

// Does it in the world that the launcher of this process has made, or alone. An error of one ends all, and says which
// it was.
int run_together(const std::function<int(World&)>& work);

}  // namespace lh
