// Videos: frames that are read have the size that was said, and there are as many.
#include <cstring>

#include "data/codecs.h"
#include "data/video.h"
#include "fuzz/fuzz.h"
#include "fuzz/targets.h"
#include "support/video_files.h"

namespace lh::fuzz {
namespace {

constexpr int64_t most_pixels = 1 << 14;  // of a video whose frames are looked at here

std::string text_of_file(const test::FileBytes& bytes) { return std::string(text_of(bytes)); }

// As a phone writes it that was held upright.
std::string turned(std::string mp4) {
  const size_t matrix = mp4.find("tkhd") + 44;
  constexpr char quarter[20] = {0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, -1};
  return mp4.replace(matrix, sizeof quarter, quarter, sizeof quarter);
}

}  // namespace

bool video(Bytes input) {
  if (!reads_videos()) return true;  // they are refused then, and there is nothing to look at
  MemoryFile file;
  const std::filesystem::path& path = file.holding(input);
  return taken([&] {
    const VideoInfo info = video_info(path);
    const auto [width, height] = info.size;
    require(width >= 1 && height >= 1 && width <= max_image_side && height <= max_image_side &&
                width * height <= max_image_pixels,
            "sizes are within the limits");
    require(info.frames >= 1 && info.frames <= max_video_frames, "the count of frames is within the limits");
    require(info.fps >= 0, "the rate is a number");
    if (width * height > most_pixels) return;
    VideoFrames frames(path);
    for (const int64_t number : even_frames(info.frames, 2)) {
      const Image frame = frames.at(number);
      require(frame.width == width && frame.height == height, "frames have the size that was said");
      require(frame.rgb.size() == static_cast<size_t>(width * height * 3), "every pixel is there");
    }
  });
}

std::vector<std::string> video_seeds() {
  const std::string mp4 = text_of_file(test::video("h264.mp4"));
  return {text_of_file(test::avi(test::film(3, 8, 6))), mp4, turned(mp4), text_of_file(test::video("vp9.webm"))};
}

}  // namespace lh::fuzz
