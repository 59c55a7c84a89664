// ERNIE-Image in any size, by the names and shapes of its files; and a small whole model in one file.
#pragma once

#include "support/flux2_shapes.h"

namespace lh::test {

// The transformer of ERNIE-Image.
struct ErnieImage {
  int64_t layers, hidden, inner, text;

  Shapes shapes() const;
};
inline constexpr LlmSize small_ministral{32, 3, 2, 64, 278};  // as many words as tests/data/mistral_small has
inline constexpr ErnieImage small_ernie_image{2, 256, 192, small_ministral.width},
    full_ernie_image{36, 4096, 12288, 3072};

// One file with everything that a run needs.
void write_small_ernie_image(const std::filesystem::path& path);

}  // namespace lh::test
