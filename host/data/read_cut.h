// Images, frames and masks as files have them, and the pixels of cuts.
#pragma once

#include <filesystem>
#include <vector>

#include "data/image.h"
#include "data/sample.h"

namespace lh {

// Reads, hashes and decodes an image file, or a video. Throws lh::Error(Code::data).
ImageFile open_image(const std::filesystem::path& path);
ImageFile open_video(const std::filesystem::path& path);
// The pixels of a cut, not mirrored. Throws lh::Error(Code::data) where the file is no longer what it was.
Image read_cut(const ImageCut& cut);
// What a cut makes of a whole image or frame.
Image cut_of(const Image& whole, const ImageCut& cut);
// Throws lh::Error(Code::data) where the file is no longer what it was.
void require_unchanged(const ImageFile& file);
// A mask cut to a bucket, not mirrored: each of its places from 0 to 1, [height, width]. Throws as read_cut does.
std::vector<float> read_mask(const SampleMask& mask, const Bucket& bucket, CropAt at = {});

}  // namespace lh
