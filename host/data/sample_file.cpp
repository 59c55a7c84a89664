#include "data/sample_file.h"

#include "data/animation.h"

namespace lh {

void write_sample(const std::filesystem::path& path, const Sampled& sampled) {
  if (sampled.moves())
    write_animation(path, sampled.frames, sampled.fps);
  else
    write_png(path, sampled.frames.front());
}

Image first_of_sample(const std::filesystem::path& path) {
  return path.extension() == sample_extension(true) ? first_frame(path) : decode_image(path);
}

}  // namespace lh
