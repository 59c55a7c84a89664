// Z-Image and decoder-only language models in any size, by the names and shapes of their original files; and a small
// whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

// The transformer of Z-Image.
struct NextDit {
  int64_t layers, refiners;  // refiners of the image, and as many of the caption
  int64_t hidden, inner, text;

  Shapes shapes() const;
};
inline constexpr NextDit small_z_image{2, 1, 256, 192, 96}, full_z_image{30, 2, 3840, 10240, 2560};

// The language model of nn/llm.hpp under `prefix`: heads of 128, two queries for each key.
struct LlmSize {
  int64_t width, layers, heads, inner, words;
};
void add_llm(Shapes& shapes, const std::string& prefix, const LlmSize& size);

// One file with everything that a run needs, with as many words as tests/data/qwen_small has.
void write_small_z_image(const std::filesystem::path& path, const NextDit& denoiser = small_z_image);

}  // namespace lh::test
