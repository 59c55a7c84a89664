// The first HunyuanVideo in any size, by the names that ComfyUI gives its keys; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

struct HunyuanVideo1Dit {
  int64_t double_blocks, single_blocks, hidden, text, pooled;

  Shapes shapes() const;
};
inline constexpr HunyuanVideo1Dit small_hunyuan_video1{1, 2, 128, 128, 64},
    full_hunyuan_video1{20, 40, 3072, 4096, 768};

// Its autoencoder under `prefix`, by the names of the original file, with 16 channels of latents, these at each level
// and so many res blocks at each of the encoder's.
void add_hunyuan_video1_vae(Shapes& shapes, const std::string& prefix, const std::vector<int64_t>& channels,
                            int64_t blocks);
inline const std::vector<int64_t> small_video1_vae_channels{32, 32, 64, 64},
    full_video1_vae_channels{128, 256, 512, 512};

// What a run needs but the tokenizer, with as many words as tests/data/llama_small has.
inline constexpr int64_t small_llama3_words = 305, clip_words = 49408;
void write_small_hunyuan_video1(const std::filesystem::path& path);

}  // namespace lh::test
