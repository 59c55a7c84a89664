#include "data/sample_file.h"

#include "data/animation.h"
#include "data/video.h"
#include "io/file.h"

namespace lh {
namespace {

std::vector<std::byte> encoded(const Sampled& sampled) {
  switch (sampled.kind()) {
    case SampleKind::image: return encode_png(sampled.frames.front(), sampled.parameters);
    case SampleKind::clip: return encode_animation(sampled.frames, sampled.fps, sampled.parameters);
    case SampleKind::clip_with_sound: break;
  }
  return encode_movie(sampled.frames, sampled.fps, *sampled.sound, sampled.parameters);
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
  if (path.extension() == sample_extension(SampleKind::clip_with_sound)) return VideoFrames(path).at(0);
  return path.extension() == sample_extension(SampleKind::clip) ? first_frame(path) : decode_image(path);
}

}  // namespace lh
