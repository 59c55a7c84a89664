// HunyuanImage 2.1 in any size, by the names that ComfyUI gives its keys; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

struct HunyuanImageDit {
  int64_t double_blocks, single_blocks, hidden, text, glyphs;
  int64_t between = 2048;  // width of the glyphs' layers
  bool distilled = false;

  Shapes shapes() const;
};
inline constexpr HunyuanImageDit small_hunyuan_image{1, 2, 128, 96, 64, 32},
    full_hunyuan_image{20, 40, 3584, 3584, 1472};

// Its autoencoder under `prefix`, with 64 channels of latents and these at each level.
void add_hunyuan_image_vae(Shapes& shapes, const std::string& prefix, const std::vector<int64_t>& channels);
inline const std::vector<int64_t> small_vae_channels{32, 32, 32, 32, 64, 128};

// One file with everything that a run needs, with as many words as tests/data/qwen_small has, or as Qwen itself has.
void write_small_hunyuan_image(const std::filesystem::path& path, bool all_words = false);

}  // namespace lh::test
