// Files of the training set are read only as they were when the data was opened.
#include "data/read_cut.h"

#include <fstream>

#include "core/error.h"
#include "core/hash.h"
#include "data/codecs.h"
#include "data/video.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

void require_unchanged(const ImageFile& file, const std::string& content_hash) {
  if (content_hash != file.content_hash)
    fail(Code::data, "{}: the file was changed after the run had begun. Start the run again", file.path.string());
}

std::vector<std::byte> read_unchanged(const ImageFile& file) {
  std::vector<std::byte> bytes = read_image_file(file.path);
  require_unchanged(file, sha256_hex(std::span(bytes)));
  return bytes;
}

// Videos may be larger than memory.
std::string hash_of_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  Sha256 hash;
  std::vector<char> piece(1 << 20);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0)
    hash.update(std::as_bytes(std::span(piece.data(), static_cast<size_t>(in.gcount()))));
  if (!in.eof()) fail(Code::data, "video {}: the file cannot be read", path.string());
  return hash.hex();
}

}  // namespace

void require_unchanged(const ImageFile& file) { require_unchanged(file, hash_of_file(file.path)); }

Image cut_of(const Image& whole, const ImageCut& cut) {
  Image image = resize_and_crop(whole, cut.bucket.width, cut.bucket.height, cut.augment.at);
  recolour(image, cut.augment.hue, cut.augment.gamma);
  return image;
}

ImageFile open_image(const fs::path& path) {
  const std::vector<std::byte> bytes = read_image_file(path);
  decode_image(bytes, path);
  return {path, sha256_hex(std::span(bytes)), image_size(bytes, path)};
}

ImageFile open_video(const fs::path& path) {
  const VideoInfo info = video_info(path);
  return {path, hash_of_file(path), info.size, info.frames, info.fps, info.sound};
}

Image read_cut(const ImageCut& cut) { return cut_of(decode_image(read_unchanged(cut.file), cut.file.path), cut); }

std::vector<float> read_mask(const SampleMask& mask, const Bucket& bucket, CropAt at) {
  const std::vector<std::byte> bytes = read_unchanged(mask.file);
  const Image whole = mask.alpha ? decode_alpha(bytes, mask.file.path) : decode_image(bytes, mask.file.path);
  const Image cut = resize_and_crop(whole, bucket.width, bucket.height, at);
  std::vector<float> places(cut.rgb.size() / 3);
  for (size_t i = 0; i < places.size(); ++i) {
    const uint8_t* pixel = cut.rgb.data() + 3 * i;
    const float white = static_cast<float>(pixel[0] + pixel[1] + pixel[2]) / (3 * 255.0f);
    const auto least = static_cast<float>(mask.least);
    places[i] = least + (1 - least) * (mask.invert ? 1 - white : white);
  }
  return places;
}

}  // namespace lh
