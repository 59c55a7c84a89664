// HunyuanVideo 1.5 in any size, by the names that ComfyUI gives its keys; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

struct HunyuanVideoDit {
  int64_t blocks, hidden, text, glyphs;
  int64_t between = 2048;  // width of the glyphs' layers
  int64_t seen = 1152;     // width of what SigLIP sees

  Shapes shapes() const;
};
inline constexpr HunyuanVideoDit small_hunyuan_video{2, 128, 96, 64, 32, 16}, full_hunyuan_video{54, 2048, 3584, 1472};

// The vision tower of nn/siglip_vision.hpp under `prefix`, of pictures of 384 pixels: patches of them.
void add_siglip_vision(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t patch);

// Its autoencoder under `prefix`, with 32 channels of latents and these at each level.
void add_hunyuan_video_vae(Shapes& shapes, const std::string& prefix, const std::vector<int64_t>& channels);
inline const std::vector<int64_t> small_video_vae_channels{8, 16, 32, 64, 64};

// One file with everything that a run needs, with as many words as tests/data/qwen_small has, or as Qwen itself has.
void write_small_hunyuan_video(const std::filesystem::path& path, bool all_words = false);
void write_small_hunyuan_video_i2v(const std::filesystem::path& path);  // with the encoder that sees its picture

}  // namespace lh::test
