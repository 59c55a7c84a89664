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
#include "data/thumbnail.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr char good = 'g', corrupt = 'c', unreadable = 'u';  // first byte of an answer; behind the others the error

// What a child sends of a good file, in front of its thumbnail: both ends are one program.
struct Facts {
  int64_t width = 0, height = 0;
  bool animated = false;
  std::array<char, 64> hash{};
  Likeness likeness;
};
static_assert(std::is_trivially_copyable_v<Facts>);

std::string examine(const fs::path& path, const Examination& how) {
  std::vector<std::byte> bytes;
  try {
    bytes = read_image_file(path);
  } catch (const Error& error) {
    return unreadable + std::string(error.what());
  }
  try {
    const Image image = how.decode(bytes, path);
    Facts facts{.width = image.width,
                .height = image.height,
                .animated = image_is_animated(bytes, path),
                .hash = {},
                .likeness = likeness_of(image)};
    sha256_hex(std::span<const std::byte>(bytes)).copy(facts.hash.data(), facts.hash.size());
    std::string answer(1 + sizeof facts, good);
    std::memcpy(answer.data() + 1, &facts, sizeof facts);
    return answer + jpeg_thumbnail(image, how.thumbnail_side);
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
