// Flux.2 in any size, by the names and shapes of its original files; and small whole models in one file.
#pragma once

#include "support/z_image_shapes.h"

namespace lh::test {

// The transformer of Flux.2.
struct Flux2 {
  int64_t hidden, text, double_blocks, single_blocks;
  bool guidance;

  Shapes shapes() const;
};
inline constexpr int64_t small_flux2_encoder = 32;  // width of the text encoder: a third of `text`
inline constexpr Flux2 small_klein{128, 3 * small_flux2_encoder, 1, 2, false},
    small_flux2_dev{128, 3 * small_flux2_encoder, 1, 2, true};

// The text encoder of dev: nn/llm.hpp's without norms of q and k and without a final norm.
void add_mistral(Shapes& shapes, const std::string& prefix, const LlmSize& size);

// One file with everything that a run needs, with as many words as tests/data/qwen_small has for klein and
// tests/data/mistral_small for dev.
void write_small_flux2(const std::filesystem::path& path, const Flux2& denoiser);

}  // namespace lh::test
