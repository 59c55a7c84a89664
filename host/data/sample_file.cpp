#include "data/sample_file.h"

#include "data/animation.h"

namespace lh {

void write_sample(const std::filesystem::path& path, const Picture& picture) {
  if (picture.moves())
    write_animation(path, picture.frames, picture.fps);
  else
    write_png(path, picture.frames.front());
}

}  // namespace lh
