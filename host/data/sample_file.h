// Files of what was sampled: an image as PNG, the frames of a clip as an animated WebP, and with sound as MP4.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/image.h"
#include "data/sound.h"

namespace lh {

enum class SampleKind { image, clip, clip_with_sound };

struct Sampled {
  std::vector<Image> frames;        // one: an image
  double fps = 0;                   // of several
  std::string parameters = {};      // how it was made; empty: not said
  std::optional<Sound> sound = {};  // of several frames
  SampleKind kind() const {
    if (frames.size() == 1) return SampleKind::image;
    return sound ? SampleKind::clip_with_sound : SampleKind::clip;
  }
};

inline constexpr std::string_view sample_extensions[] = {".png", ".webp", ".mp4"};
inline std::string_view sample_extension(SampleKind kind) { return sample_extensions[static_cast<size_t>(kind)]; }
// path: with the extension of what it is.
void write_sample(const std::filesystem::path& path, const Sampled& sampled);
// False where something has that name already, which stays.
bool write_new_sample(const std::filesystem::path& path, const Sampled& sampled);
Image first_of_sample(const std::filesystem::path& path);  // the image, or a clip's first frame

}  // namespace lh
