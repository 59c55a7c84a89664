// --processes N: mpirun is started here, and again where a process of the run was lost.
#pragma once

#include "cli/options.h"

namespace lh {

// Ends with the exit status of the run. Throws lh::Error(Code::resource) where there is no mpirun.
int run_launcher(const Options& options);

}  // namespace lh
