// Which programs load a LoRA file: every key of it held against what each program is known to load (`lora_loaders` of
// the plugin) and against the shapes of a checkpoint. And what no program should be given: values that are not finite,
// and a file that was changed after lora-host wrote it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/foreign_lora.h"
#include "io/lora_read.h"

namespace lh {

struct LoraIssue {
  std::string key, why, fix;
};

struct ProgramReport {
  std::string program;
  bool meant = false;             // it loads modules with names like all of this file's
  int64_t loaded = 0;             // keys
  int64_t unchecked = 0;          // keys of text encoders that are not at hand
  std::vector<LoraIssue> issues;  // one for each key that is not loaded, or loaded wrongly
};

struct VerifyReport {
  int64_t keys = 0, modules = 0;
  std::vector<ProgramReport> programs;
  std::vector<LoraIssue> damage = {};  // of the content, whatever program loads it
  // The content is whole, and no key of the programs in `asked` is left over; with an empty list, of those that the
  // file is meant for, of which there must be one.
  bool good(const std::vector<std::string>& asked) const;
};

// The program that reads files of plugins' adapters.
inline constexpr const char* own_program = "lora-host";

// foreign: the adapter of a file that a plugin made; then lora-host is a further program. Throws
// lh::Error(Code::config) for a program in `asked` that the plugin does not know.
VerifyReport verify_lora(const LoraFile& file, const CheckpointSpec& spec, const std::map<std::string, Desc>& weights,
                         const std::vector<std::string>& asked, const ForeignLora* foreign = nullptr);
std::string verify_text(const VerifyReport& report, const std::string& path);
nlohmann::json verify_json(const VerifyReport& report, const std::vector<std::string>& asked);

}  // namespace lh
