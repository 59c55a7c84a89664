// Krea 2 in any size, by the names and shapes of its original files; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

// The transformer. Text heads are as wide as the others, and none of them share keys.
struct Krea2Dit {
  int64_t blocks, hidden, inner, head, group;  // of so many query heads one head of keys and values
  int64_t text, text_inner, states;
  int64_t sinusoid = 256;

  Shapes shapes() const;

 private:
  void block(Shapes& out, const std::string& name, int64_t width, int64_t keys, int64_t mlp) const;
};
inline constexpr Krea2Dit small_krea2{2, 256, 192, 64, 2, 64, 96, 2},
    full_krea2{28, 6144, 16384, 128, 4, 2560, 6912, 12};

// Qwen3-VL's language model for the small transformer: five layers, of which two states are read.
void add_small_qwen3_vl(Shapes& shapes, const std::string& prefix, int64_t words);

// Its vision tower (nn/qwen3_vision.hpp) under `prefix`, "visual.", for a language model of `width`.
void add_qwen3_vision(Shapes& shapes, const std::string& prefix, int64_t width);

// One file with everything that a run needs, with as many words as the tokenizer that ships with the program has.
void write_small_krea2(const std::filesystem::path& path);

}  // namespace lh::test
