// Flux.3 in any size, by the names and shapes of its original files; and a small whole model in one file.
#pragma once

#include "support/z_image_shapes.h"

namespace lh::test {

// The transformer of Flux.3, with its blocks for reference pictures.
struct Flux3 {
  int64_t hidden, text, mode_blocks, single_blocks;

  Shapes shapes() const;
};
inline constexpr LlmSize small_flux3_encoder{32, 9, 2, 64, 1626};  // as many words as tests/data/qwen_small has
inline constexpr Flux3 small_flux3{128, 8 * small_flux3_encoder.width, 1, 2}, full_flux3{3072, 8 * 2560, 5, 28};

// One file with everything that a run needs.
void write_small_flux3(const std::filesystem::path& path);

}  // namespace lh::test
