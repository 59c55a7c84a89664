// Files of what was sampled: an image as PNG, the frames of a clip as an animated WebP.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/image.h"

namespace lh {

struct Sampled {
  std::vector<Image> frames;    // one: an image
  double fps = 0;               // of several
  std::string parameters = {};  // how it was made; empty: not said
  bool moves() const { return frames.size() > 1; }
};

inline constexpr std::string_view sample_extensions[] = {".png", ".webp"};
inline std::string_view sample_extension(bool moves) { return sample_extensions[moves ? 1 : 0]; }
// path: with the extension of what it is.
void write_sample(const std::filesystem::path& path, const Sampled& sampled);
// False where something has that name already, which stays.
bool write_new_sample(const std::filesystem::path& path, const Sampled& sampled);
Image first_of_sample(const std::filesystem::path& path);  // the image, or a clip's first frame

}  // namespace lh
