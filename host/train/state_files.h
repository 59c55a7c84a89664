// The files of a run's state: found, told apart, and read as far as their numbers go.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/record.h"

namespace lh {

struct RunState {
  int64_t step = 0;                           // optimizer steps done
  std::array<float, 2> loss_scale{65536, 0};  // scale, clean steps (fp16 only)
  std::map<std::string, std::string> facts;   // what must not change between runs, by config key
  int64_t updates = 0;                        // of these steps, the ones that loss scaling did not skip
  std::set<int64_t> saves = {};               // steps that this run has LoRA files of, or had
  std::string settings = {};                  // RunSettings in force, as text; empty: not recorded
  int64_t changes = 0;                        // of the run's history, behind it
  std::optional<int64_t> averaged = {};       // updates of the average of the weights; none: there is no average
  int64_t micro_batches = 0;                  // of a step; 0: as train.gradient_accumulation says
  // By rank, of the processes that train together: Device::choices(). A rank that is not there takes the first one's.
  std::map<int64_t, std::string> choices = {};
  std::string broken = {};  // what this run has otherwise than the one that was saved, in words
};

// States to go on from.
struct StateSource {
  std::filesystem::path folder;      // empty: a new run
  bool own = true;                   // of this run, whose lock is held; those of another run are only read
  std::optional<int64_t> step = {};  // that of this step and no other
  bool writes = true;                // files may be renamed; not where another process of the run does
  int64_t micro_batches = 0;         // of a step of the run as it was started now
  bool allow_changes = false;        // go on with other data or another course of the training
};

inline constexpr std::string_view state_kind = "state/1";
inline constexpr const char* averaged_key = "ema.updates";
inline constexpr const char* micro_batches_key = "micro_batches";
inline constexpr const char* fact_prefix = "fact.";
inline constexpr std::string_view choices_prefix = "choices.";  // and the rank
inline constexpr const char* accumulation_fact = "train.gradient_accumulation";

std::string state_name(int64_t step);  // "000000012": its key, and its file's name without the ending

struct Generation {
  int64_t step = 0;
  std::filesystem::path path;
};
// Files that have the name of a state, newest first. Throws lh::Error(Code::data) where the folder cannot be listed.
std::vector<Generation> generations(const std::filesystem::path& folder);

struct FoundState {
  std::filesystem::path path;
  Record record;   // with its file
  RunState state;  // without its facts
};
// The state to go on from, as load_state (state.h) chooses it. act: warn of what is passed over and, in the run's own
// folder, set it aside once a good one is found.
std::optional<FoundState> find_state(const StateSource& from, bool act);

// Tensors that hold a NaN or an infinity, among those that it is shown one after the other.
class NonFinite {
 public:
  void look_at(const std::string& name, const Desc& desc, const void* data);
  std::string text() const;  // the first of them, as a part of a sentence; empty: all values are finite

 private:
  std::string first_;
  int64_t tensors_ = 0;
};

// Renames the states after `step` to *.superseded, so that nothing goes on from them; all of them without a step.
void set_aside_states(const std::filesystem::path& folder, std::optional<int64_t> step);

}  // namespace lh
