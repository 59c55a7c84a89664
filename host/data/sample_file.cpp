#include "data/sample_file.h"

#include "data/animation.h"
#include "io/file.h"

namespace lh {
namespace {

std::vector<std::byte> encoded(const Sampled& sampled) {
  return sampled.moves() ? encode_animation(sampled.frames, sampled.fps, sampled.parameters)
                         : encode_png(sampled.frames.front(), sampled.parameters);
}

}  // namespace

void write_sample(const std::filesystem::path& path, const Sampled& sampled) {
  const std::vector<std::byte> file = encoded(sampled);
  publish_file(path, static_cast<int64_t>(file.size()), [&](OutputFile& out) { out.write(std::span(file)); });
}

bool write_new_sample(const std::filesystem::path& path, const Sampled& sampled) {
  const std::vector<std::byte> file = encoded(sampled);
  return publish_new_file(path, static_cast<int64_t>(file.size()),
                          [&](OutputFile& out) { out.write(std::span(file)); });
}

Image first_of_sample(const std::filesystem::path& path) {
  return path.extension() == sample_extension(true) ? first_frame(path) : decode_image(path);
}

}  // namespace lh
