// Ideogram 4 in any size, by the names and shapes of its original files; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

// The transformer.
struct Ideogram4Dit {
  int64_t blocks, hidden, inner, head;
  int64_t condition;  // width of what blocks are modulated by
  int64_t text;

  Shapes shapes() const;
};
inline constexpr int64_t small_ideogram4_encoder = 32;  // width of the text encoder, of which three states are read
inline constexpr Ideogram4Dit small_ideogram4{2, 256, 192, 128, 48, 3 * small_ideogram4_encoder},
    full_ideogram4{34, 4608, 12288, 256, 512, 13 * 4096};

// Qwen3-VL's language model for the small transformer: seven layers.
void add_ideogram4_encoder(Shapes& shapes, const std::string& prefix, int64_t words);

// One file with everything that a run needs, with as many words as the tokenizer that ships with the program has.
void write_small_ideogram4(const std::filesystem::path& path);

}  // namespace lh::test
