// What one checkpoint has and another of the same model has not, as a LoRA.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/lora_file.h"
#include "lora/low_rank.h"
#include "lora/report.h"

namespace lh {

struct ExtractedLora {
  std::vector<LoraModule> modules;
  std::vector<ModuleLine> lines;
  // Weights that differ and are no matrices, biases and norms: how many, and their share of all squared differences.
  // They are in the modules, or are left out.
  int64_t small = 0;
  double small_share = 0;
};

// A module for each matrix and convolution that differs, of components that LoRA files have names for and that both
// hold. with_small: biases and norms as they differ, as LyCORIS has them (diff_b, diff). Throws lh::Error(Code::data)
// where names or shapes differ, where nothing does, and for a NaN.
ExtractedLora extract_lora(const CheckpointSpec& spec, const Checkpoint& base, const Checkpoint& tuned,
                           const RankChoice& choice, bool with_small = false);

}  // namespace lh
