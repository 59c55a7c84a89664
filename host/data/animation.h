// Short animations out: WebP that plays forever.
#pragma once

#include <filesystem>
#include <span>

#include "data/image.h"

namespace lh {

bool writes_animations();
// Lossy at a high quality, `fps` frames a second; all frames have one size. Written whole or not at all, as other files
// are. Frames that do not differ are one in the file, which is shown for as long. Throws lh::Error(Code::config) where
// libwebp was not there when lora-host was built.
void write_animation(const std::filesystem::path& path, std::span<const Image> frames, double fps);
// Of an animation that was written so. Throws lh::Error(Code::data) for another file, and as write_animation does.
Image first_frame(const std::filesystem::path& path);

}  // namespace lh
