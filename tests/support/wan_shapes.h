// Wan in any size, by the names and shapes of its original files; and a small whole model in one file.
#pragma once

#include "support/model_files.h"

namespace lh::test {

// The transformer.
struct WanDit {
  int64_t blocks, hidden, inner, text, channels = 16;
  int64_t shown = 0;  // channels of what a clip begins with, of image-to-video
  int64_t image = 0;  // width of what an image encoder says of it, of 2.1's

  Shapes shapes() const;
};
inline constexpr WanDit small_wan{2, 256, 320, 96}, wan_1_3b{30, 1536, 8960, 4096}, wan_14b{40, 5120, 13824, 4096};
inline constexpr WanDit small_ti2v{2, 256, 320, 96, 48}, wan_ti2v_5b{30, 3072, 14336, 4096, 48};  // of 2.2
constexpr WanDit image_to_video(WanDit dit) {
  dit.shown = 20;
  return dit;
}

constexpr WanDit seeing(WanDit dit, int64_t width) {
  dit.image = width;
  return dit;
}
inline constexpr WanDit small_wan21_i2v = seeing(image_to_video(small_wan), 160);

// The vision tower of nn/clip_vision.hpp under `prefix`, of pictures of 224 pixels: patches of them.
void add_clip_vision(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t patch);

// UMT5 under `prefix`: a T5 whose blocks have tables of their own.
void add_umt5(Shapes& shapes, const std::string& prefix, int64_t width, int64_t blocks, int64_t words);

// One file with everything that a run needs but the tokenizer, with as many words as that of T5 has.
void write_small_wan(const std::filesystem::path& path);
void write_small_ti2v(const std::filesystem::path& path);
void write_small_wan_i2v(const std::filesystem::path& path);    // image-to-video of 2.2
void write_small_wan21_i2v(const std::filesystem::path& path);  // of 2.1, with its image encoder

}  // namespace lh::test
