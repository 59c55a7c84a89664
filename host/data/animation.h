// Short animations out: WebP that plays forever.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace lh {

bool writes_animations();
// Lossy at a high quality, `fps` frames a second; all frames have one size. Frames that do not differ are one in the
// file, which is shown for as long. Throws lh::Error(Code::config) where libwebp was not there when lora-host was
// built. parameters: how it was made, as EXIF's comment; empty: not said.
std::vector<std::byte> encode_animation(std::span<const Image> frames, double fps, const std::string& parameters = {});
// Of a file of such an animation. Throws lh::Error(Code::data) for another file, and as encode_animation does.
Image first_frame(const std::filesystem::path& path);

}  // namespace lh
