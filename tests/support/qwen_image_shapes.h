// Qwen-Image in any size, by the names and shapes of its original files; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

// The transformer.
struct QwenDit {
  int64_t blocks, hidden, inner, text;

  Shapes shapes() const;
};
inline constexpr QwenDit small_qwen_image{2, 256, 320, 96}, full_qwen_image{60, 3072, 12288, 3584};

// Qwen2.5-VL's language model under `prefix`, with two layers.
void add_qwen2_5(Shapes& shapes, const std::string& prefix, int64_t width, int64_t words);

// Its vision tower under `prefix`, "visual.", with one layer of one head.
void add_qwen_vision(Shapes& shapes, const std::string& prefix, int64_t width);

// One file with everything that a run needs, with as many words as tests/data/qwen_small has.
void write_small_qwen_image(const std::filesystem::path& path);

}  // namespace lh::test
