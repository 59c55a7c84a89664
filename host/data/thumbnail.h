// Small JPEG files of pictures, for pages.
#pragma once

#include <cstdint>
#include <string>

#include "data/image.h"

namespace lh {

// The whole picture, at most `side` pixels wide and high; never enlarged.
std::string jpeg_thumbnail(const Image& image, int64_t side);

}  // namespace lh
