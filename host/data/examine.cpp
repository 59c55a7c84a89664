#include "data/examine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <type_traits>

#include "core/apart.h"
#include "core/error.h"
#include "core/hash.h"
#include "data/codecs.h"
#include "data/read_cut.h"
#include "data/thumbnail.h"
#include "data/video.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr char good = 'g', corrupt = 'c', unreadable = 'u';  // first byte of an answer; behind the others the error

// What a child sends of a good file, in front of its thumbnail: both ends are one program.
struct Facts {
  int64_t width = 0, height = 0, frames = 1;
  double fps = 0;
  bool animated = false, sound = false;
  std::array<char, 64> hash{};
  Likeness likeness;
};
static_assert(std::is_trivially_copyable_v<Facts>);

std::string good_answer(Facts facts, const std::string& content_hash, const Image& image, const Examination& how) {
  facts.likeness = likeness_of(image);
  content_hash.copy(facts.hash.data(), facts.hash.size());
  std::string answer(1 + sizeof facts, good);
  std::memcpy(answer.data() + 1, &facts, sizeof facts);
  return answer + jpeg_thumbnail(image, how.thumbnail_side);
}

// Of its frames the middle one is looked at.
std::string examine_video(const fs::path& path, const Examination& how) {
  const ImageFile file = open_video(path);
  const Image image = VideoFrames(path).at(even_frames(file.frames, 1).front());
  return good_answer({.width = image.width,
                      .height = image.height,
                      .frames = file.frames,
                      .fps = file.fps,
                      .sound = file.sound,
                      .hash = {},
                      .likeness = {}},
                     file.content_hash, image, how);
}

std::string examine(const fs::path& path, const Examination& how) {
  std::vector<std::byte> bytes;
  const bool video = is_video_name(path);
  try {
    if (!video) bytes = read_image_file(path);
  } catch (const Error& error) {
    return unreadable + std::string(error.what());
  }
  try {
    if (video) return examine_video(path, how);
    const Image image = how.decode(bytes, path);
    return good_answer({.width = image.width,
                        .height = image.height,
                        .animated = image_is_animated(bytes, path),
                        .hash = {},
                        .likeness = {}},
                       sha256_hex(std::span<const std::byte>(bytes)), image, how);
  } catch (const Error& error) {
    return corrupt + std::string(error.what());
  }
}

ExaminedImage read_answer(const fs::path& path, const ApartAnswer& answer) {
  ExaminedImage image;
  OpenedImage& opened = image.opened;
  opened.file.path = path;
  if (!answer.failure.empty()) {
    // The run would meet the same end.
    opened.unreadable = fmt::format("image {}: its decoder failed: {}. Save it anew with another program, or remove it",
                                    path.string(), answer.failure);
  } else if (answer.text.front() == good) {
    Facts facts;
    std::memcpy(&facts, answer.text.data() + 1, sizeof facts);
    opened.file.size = {facts.width, facts.height};
    opened.file.frames = facts.frames;
    opened.file.fps = facts.fps;
    opened.file.sound = facts.sound;
    opened.animated = facts.animated;
    opened.file.content_hash.assign(facts.hash.data(), facts.hash.size());
    image.likeness = facts.likeness;
    image.thumbnail = answer.text.substr(1 + sizeof facts);
  } else {
    (answer.text.front() == corrupt ? opened.corrupt : opened.unreadable) = answer.text.substr(1);
  }
  return image;
}

}  // namespace

Examination usual_examination() {
  return {.children = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 16),
          .decode = [](Bytes file, const fs::path& name) { return decode_image(file, name); }};
}

std::vector<ExaminedImage> examine_images(const std::vector<fs::path>& files, const Examination& how) {
  const std::vector<ApartAnswer> answers =
      each_apart(files.size(), how.children, how.seconds, [&](size_t i) { return examine(files[i], how); });
  std::vector<ExaminedImage> images;
  for (size_t i = 0; i < files.size(); ++i) images.push_back(read_answer(files[i], answers[i]));
  return images;
}

}  // namespace lh
