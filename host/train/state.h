// The state of a run on disk: everything that the next step depends on, in one record that is whole or absent.
//
// Random numbers and data order follow from (seed, step), so the file holds the trained tensors, the optimizer's
// states, the loss scale and a few facts about the run. <output>/state/<step>.safetensors; the newest good one is
// resumed from.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "compile/adapters.h"
#include "run/update.h"
#include "train/state_files.h"

namespace lh {

// Publishes the state and removes old generations, of which `keep` (at least 2) stay. Throws lh::Error(Code::numeric)
// where a value is a NaN or an infinity, before anything is written.
void save_state(const std::filesystem::path& folder, const RunState& state, const Adapters& adapters,
                const Update& update, int64_t keep);

// The state that load_state would take, without its tensors, its facts compared; throws as that does, but changes
// nothing. What differs and is allowed is in `broken`.
std::optional<RunState> check_state(const StateSource& from, const std::map<std::string, std::string>& facts);

// Loads the newest good state into `adapters` and `update`. A file that is damaged, is no state, is another step's or
// holds a NaN is passed over with a warning, and set aside where the folder is the run's own. Nothing when there is no
// state at all. Throws lh::Error: Code::config listing each fact that differs, unless it may and is allowed; Code::data
// where a file cannot be read (which says nothing about its content), or where there are states and none of them is
// good.
//
// A state of another optimizer is kept where name, shape, type and meaning agree (LH_MEANING_*); what begins anew is
// said in a warning, and the count of updates, which rules correct their averages by, then begins at 0.
//
// An average of the weights (section "ema") that only the file has, or only this run, is said in a warning; `averaged`
// is then empty, and the average is left as it is.
std::optional<RunState> load_state(const StateSource& from, const std::map<std::string, std::string>& facts,
                                   const Adapters& adapters, Update& update);

}  // namespace lh
