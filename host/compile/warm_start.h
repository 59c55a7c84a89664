// Adapters that start from a LoRA file instead of from nothing (network.pretrained_lora_path).
//
// The first step changes the very weights that the file makes: down is taken as it is, up times what the file's
// alpha / rank differs from the run's. A file of lower rank fills the first rows of down; the others start as new
// adapters do, with up at zero. The parts of a fused module (q, k, v) stand one after the other in down, and each in
// its own rows of up, unless all have the same down, as those have that were split from a fused module.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compile/adapters.h"
#include "compile/exact_start.h"
#include "io/lora_names.h"
#include "io/lora_read.h"

namespace lh {

class WarmStart {
 public:
  // Throws lh::Error(Code::data) that lists every module of the file that the adapters cannot continue, and why.
  // weights: canonical names and shapes of the checkpoint.
  WarmStart(const std::filesystem::path& path, const CheckpointSpec& spec, const std::map<std::string, Desc>& weights,
            const Adapters& adapters);
  // Brings the values of the file into adapters that have been initialised.
  void apply(const Adapters& adapters) const;
  int64_t modules() const {  // that the file has
    return static_cast<int64_t>(exact_ ? exact_->modules() : parts_.size());
  }
  std::string fingerprint() const { return file_.file->fingerprint(); }

 private:
  struct Part {
    const LoraEntry* entry;
    LoraPlace place;
  };
  int64_t rank_of(const std::vector<Part>& parts) const;
  bool one_down(const std::vector<Part>& parts) const;
  void said(size_t trained) const;
  LoraModule started(LoraModule module, const std::vector<Part>& parts) const;
  LoraFile file_;
  std::optional<ExactStart> exact_;                 // of adapters that are no plain pairs; then there are no parts
  std::map<std::string, std::vector<Part>> parts_;  // by module
};

}  // namespace lh
