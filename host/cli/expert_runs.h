// A job of several experts of one model (config/experts.h) as runs, one after another: each has a folder, a state and
// a LoRA of its own, as if it had been started alone.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "plugin/registry.h"

namespace lh {

// What each run is configured as; of a job of one model the job itself. A later run has the LoRA of the earlier ones in
// its samples. Throws lh::Error(Code::config) where the file of an expert is not known, or a setting is of one alone.
std::vector<Config> runs_of(const Registry& registry, const Config& job);
// Throws lh::Error for what would be found out when the runs before have ended: a file that is not the other expert, a
// folder that holds an earlier run.
void check_runs(const Registry& registry, const std::vector<Config>& runs, bool resume);
// All that the run writes is there, so that there is nothing to go on with.
bool is_finished(const Config& run);
std::filesystem::path final_lora(const Config& run);

}  // namespace lh
