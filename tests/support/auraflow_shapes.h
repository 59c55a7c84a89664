// AuraFlow in any size, by the names and shapes of its original files; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

struct AuraFlowDit {
  int64_t double_layers, single_layers, hidden, inner, text;
  int64_t grid;  // side of the grid of positions

  Shapes shapes() const;
};
inline constexpr AuraFlowDit small_auraflow{1, 2, 256, 64, 96, 24}, full_auraflow{4, 32, 3072, 8192, 2048, 96};

// The text encoder and the autoencoder that belong to small_auraflow, by component, with as many words as
// tests/data/pile_t5_small has.
std::map<std::string, std::vector<Given>> small_auraflow_parts();

// What a run needs but the tokenizer.
void write_small_auraflow(const std::filesystem::path& path);

}  // namespace lh::test
