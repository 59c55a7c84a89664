// Qwen-Image 2.1 in any size, by the names and shapes of its single files; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

// The transformer: heads of 128, an mlp of three times the width.
struct QwenImage21Dit {
  int64_t blocks, hidden, text;

  Shapes shapes() const;
};
inline constexpr QwenImage21Dit small_qwen_image21{2, 128, 64}, full_qwen_image21{32, 4096, 4096};

// Qwen3-VL's language model for the small transformer.
void add_small_qwen3_vl_8b(Shapes& shapes, const std::string& prefix, int64_t words);

// One file with everything that a run needs, with as many words as the tokenizer that ships with the program has.
void write_small_qwen_image21(const std::filesystem::path& path);

}  // namespace lh::test
