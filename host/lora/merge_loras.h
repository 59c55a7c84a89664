// Several LoRAs as one, each with a strength: the sum of their changes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/lora_file.h"
#include "io/lora_merge.h"
#include "lora/low_rank.h"
#include "lora/report.h"

namespace lh {

struct MergedLora {
  std::vector<LoraModule> modules;
  std::vector<ModuleLine> lines;
};

// choice: how far each module is cut; nothing of it set: exactly, with the sum of the ranks (io/lora_products.h has
// that of other adapters). A change that the weight takes part in, DoRA's or that of a plugin's adapter, is taken from
// the weight as it becomes, and needs a choice. Biases and norms are added up. Throws lh::Error(Code::data) for what
// matches nothing, after `unmatched`, and for files that change nothing.
MergedLora merge_loras(const CheckpointSpec& spec, const Checkpoint& base, const std::vector<LoraInput>& inputs,
                       const RankChoice& choice, Unmatched unmatched);

}  // namespace lh
