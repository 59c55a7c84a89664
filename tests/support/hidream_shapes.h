// HiDream-I1 in any size, by the names and shapes of its files; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

struct HiDreamDit {
  int64_t double_blocks, single_blocks, hidden, t5, llama, pooled;
  int64_t expert, shared;  // inner widths; that of the text is an expert's

  Shapes shapes() const;
};
inline constexpr HiDreamDit small_hidream{1, 2, 128, 64, 64, 128, 64, 48},
    full_hidream{16, 32, 2560, 4096, 4096, 2048, 6912, 3584};

// A CLIP with a projection to its own width, and with room for as many tokens.
void add_projected_clip(Shapes& shapes, const std::string& prefix, int64_t width, int64_t tokens = 128);

// The text encoders and the autoencoder that belong to small_hidream, by component, with as many words as
// tests/data/llama_small has.
std::map<std::string, std::vector<Given>> small_hidream_parts();

// What a run needs but Llama's tokenizer.
void write_small_hidream(const std::filesystem::path& path);

}  // namespace lh::test
