// A LoRA file at another rank: each module's best approximation, under its own names.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "io/lora_file.h"
#include "lora/low_rank.h"
#include "lora/report.h"

namespace lh {

struct ResizedLora {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::vector<ModuleLine> lines;
};

// Pairs and those with a Tucker core, which is multiplied out; a DoRA's magnitude stays. Whole changes of biases and
// norms stay as they are, other adapters are refused. Alphas keep the scale alpha / rank; a scale that stands beside
// the tensors goes into up. A module never gets a rank above its own. dtype: of all but alpha; nothing: as they are.
ResizedLora resize_lora(const LoraFile& file, const RankChoice& choice, std::optional<DType> dtype);

// The same modules in another type, alphas as they are.
ResizedLora retype_lora(const LoraFile& file, DType dtype);

}  // namespace lh
