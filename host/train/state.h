// The state of a run on disk: everything that the next step depends on, in one file that is whole or absent.
//
// Random numbers and data order follow from (seed, step), so the file holds the trained tensors, the optimizer's
// states, the loss scale and a few facts about the run. <output>/state/<step>.safetensors; the newest valid one is
// resumed from.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "compile/adapters.h"
#include "run/update.h"

namespace lh {

struct RunState {
  int64_t step = 0;                           // optimizer steps done
  std::array<float, 2> loss_scale{65536, 0};  // scale, clean steps (fp16 only)
  std::map<std::string, std::string> facts;   // what must not change between runs, by config key
  int64_t updates = 0;                        // of these steps, the ones that loss scaling did not skip
  std::optional<int64_t> averaged = {};       // updates of the average of the weights; none: there is no average
};

// Publishes the state and removes old generations, of which `keep` (at least 2) stay.
void save_state(const std::filesystem::path& folder, const RunState& state, const Adapters& adapters,
                const Update& update, int64_t keep);

// Compares the facts of the newest valid state; throws as load_state does, but changes nothing.
void check_state(const std::filesystem::path& folder, const std::map<std::string, std::string>& facts);

// Loads the newest valid state into `adapters` and `update`; damaged files are set aside with a warning. Nothing when
// there is none. Throws lh::Error(Code::config) listing each fact that differs.
//
// A state of another optimizer is kept where name, shape, type and meaning agree (LH_MEANING_*); what begins anew is
// said in a warning, and the count of updates, which rules correct their averages by, then begins at 0.
//
// An average of the weights (section "ema") that only the file has, or only this run, is said in a warning; in the
// second case `averaged` is empty and the average is left as it is.
std::optional<RunState> load_state(const std::filesystem::path& folder, const std::map<std::string, std::string>& facts,
                                   const Adapters& adapters, Update& update);

}  // namespace lh
