// Image files decoded by children of this process: one that crashes the decoder, or keeps it busy for ever, is named,
// and the others are examined all the same.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/likeness.h"

namespace lh {

struct ExaminedImage {
  OpenedImage opened;
  Likeness likeness;      // these where it can be used
  std::string thumbnail;  // JPEG
};

struct Examination {
  size_t children = 1;
  double seconds = 60;  // that one file may take
  int64_t thumbnail_side = 160;
  std::function<Image(std::span<const std::byte>, const std::filesystem::path&)> decode;
};
// As many children as there are cores, and the decoders of this host.
Examination usual_examination();

// In the order of `files`. To be called while there are no other threads.
std::vector<ExaminedImage> examine_images(const std::vector<std::filesystem::path>& files, const Examination& how);

}  // namespace lh
