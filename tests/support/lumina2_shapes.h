// Lumina 2 and Gemma 2 in any size, by the names and shapes of their original files; and a small whole model in one
// file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

struct Lumina2Dit {
  int64_t layers, refiners;  // refiners of the image, and as many of the text
  int64_t hidden, keys, head, inner, text, time;

  Shapes shapes() const;
};
inline constexpr Lumina2Dit small_lumina2{2, 1, 192, 96, 96, 128, 64, 64},
    full_lumina2{26, 2, 2304, 768, 96, 9216, 2304, 1024};

// Gemma 2 under `prefix`: heads of 256, two queries for each key.
struct Gemma2Size {
  int64_t width, layers, heads, inner, words;
};
void add_gemma2(Shapes& shapes, const std::string& prefix, const Gemma2Size& size);

// One file with everything that a run needs but the tokenizer, with as many words as tests/data/gemma_small has.
void write_small_lumina2(const std::filesystem::path& path);

}  // namespace lh::test
