// Videos for tests. AVI of uncompressed pixels is written byte by byte, so what is read back is known exactly; MP4
// (H.264, its frames not stored in their order, BT.709) and WebM (VP9, BT.601 unsaid) lie in tests/data/videos, made of
// film_frame(0) to (11) of 64 x 48 at 24000/1001 a second.
#pragma once

#include <string>
#include <vector>

#include "support/image_files.h"

namespace lh::test {

// Red, green, blue, and a grey that says which frame it is.
Image film_frame(int64_t number, int64_t width = 64, int64_t height = 48);
std::vector<Image> film(int64_t frames, int64_t width = 64, int64_t height = 48);

struct AviRate {
  int64_t rate = 24, scale = 1;  // rate / scale frames a second
};
FileBytes avi(const std::vector<Image>& frames, AviRate rate = {});

// One of tests/data/videos.
FileBytes video(const std::string& name);

}  // namespace lh::test
