// The command line of lora-host. One struct says what was asked for; main() acts on it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "io/control.h"
#include "io/lora_merge.h"
#include "lora/low_rank.h"
#include "plugin/registry.h"

namespace lh {

struct LoraToolOptions {    // convert, extract, merge, resize
  std::string into = {};    // merge: "lora" or "checkpoint"
  RankChoice choice = {};   // extract, merge, resize
  std::string format = {};  // "kohya", "comfyui", "diffusers"; empty: not given
  std::string dtype = {};   // "bf16", "fp16", "fp32"; empty: not given
  bool force = false;       // a file that is there is replaced
  bool skip_unmatched = false;
  bool biases = false;  // extract: changes of biases and norms, too
};

struct InitOptions {
  std::string model = {};               // id of a plugin, whose files are looked for
  std::filesystem::path models = {};    // where
  std::filesystem::path from = {};      // a configuration to be converted, instead of all that
  std::string purpose = {}, card = {};  // "subject", "style", "concept"; the card by name or figures, or empty
};

struct Options {
  // "train", "init", "check", "watch", "ctl", "sample", "plugins", "inspect", "verify", "merge", "convert", "extract",
  // "resize", "make-checkpoint", "bench", "plan"; or "print": show `text` and end with 0.
  std::string command = {};
  std::string text = {};
  std::vector<std::filesystem::path> plugin_dirs = {};  // --plugin-dir, repeatable: searched before the installed ones
  std::shared_ptr<const Registry> registry = {};        // of commands that open a model: of those folders
  Config config = {};                                   // of these: the file, then the flags

  std::string resume = {};       // train: empty = a new run, "auto" = the latest checkpoint of output_dir, else a path
  std::string resume_from = {};  // train: empty = the newest checkpoint, "none", or the step of one
  bool allow_changes = false;    // train: resume with other data or another course
  std::filesystem::path replay = {};  // train: the history of another run
  // train: mpirun is started with so many, and so often again where one is lost; 0: this process is the run, or part of
  // it
  int64_t processes = 0, restarts = 0;
  std::vector<std::string> arguments = {};  // then: the command line without these two
  bool dry_run = false;                     // train: check everything, print the plan, stop before the first step
  std::vector<LoraInput> loras = {};        // sample, merge
  LoraToolOptions tool = {};
  InitOptions init = {};
  // inspect, verify, convert, resize: the file; extract: the tuned checkpoint; make-checkpoint, bench, plan: the key
  // list; ctl, watch: the run
  std::filesystem::path input = {};
  ControlRequest request = {};  // ctl
  // make-checkpoint, merge, convert, extract, resize: the file to write; sample: image file or folder; check: the page;
  // init: the configuration
  std::filesystem::path output = {};
  int64_t seed = 0;                        // make-checkpoint
  int64_t port = 8765;                     // watch: 0: any that is free
  int64_t repeats = 20;                    // bench: steps to time
  int64_t text_length = 0;                 // bench, plan: text tokens; 0: as the model has them
  std::vector<std::string> budgets = {};   // plan: sizes
  std::string card = {}, link = {};        // plan: instead of this machine's; bench: link
  bool times = false;                      // bench: time by op as well
  bool tune = false;                       // bench: the kernels that were chosen as well
  bool json = false;                       // check, inspect, verify: for tools
  bool verbose = false;                    // plugins: all that they take; train --dry-run: all of the plan
  std::vector<std::string> programs = {};  // verify: that have to load the file
};

// Throws lh::Error(Code::config) that says what is wrong with the command line or the configuration file. Plugins are
// loaded first, by the commands that open a model: they have keys and flags of their own.
Options parse_options(int argc, const char* const* argv);

// "lora-host 0.1.0", the ABI and the backends of this build.
std::string version_text();

}  // namespace lh
