#include "encode/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "data/cut_reader.h"
#include "data/video.h"
#include "encode/image_inputs.h"

namespace lh {
namespace {

// The sides' ratio kept as well as multiples allow, at about the area; or a square.
Bucket size_of(const PictureSpec& spec, const Bucket& cut) {
  if (spec.side > 0) return {spec.side, spec.side};
  const auto width = static_cast<double>(cut.width), height = static_cast<double>(cut.height);
  const auto side = [&](double ratio) {
    const double exact = std::sqrt(static_cast<double>(spec.area) * ratio) / static_cast<double>(spec.multiple);
    return std::max<int64_t>(1, std::llround(exact)) * spec.multiple;
  };
  return {side(width / height), side(height / width)};
}

}  // namespace

Prompt::Prompt(const Recipe& recipe, std::string words, const ImageFiles& images, const ImageCut& own)
    : text(std::move(words)) {
  for (const auto& [input, spec] : recipe.pictures)
    pictures.emplace(input,
                     spec.first_frame ? first_frame_cut(spec.of, images, own) : further_cut(images.at(spec.of), own));
}

std::string Prompt::identity() const {
  std::string all = negative ? "negative\n" + text : text;
  for (const auto& [input, cut] : pictures) {
    const Augment& augment = cut.augment;
    all += fmt::format("\n{}={} {}x{} {}{} {} {} {}", input, cut.file.content_hash, cut.bucket.width, cut.bucket.height,
                       cut.flip.x ? "x" : "", cut.flip.y ? "y" : "", augment.at.x, augment.at.y, augment.at.scale);
    if (augment.hue != 0 || augment.gamma != 1) all += fmt::format(" colours {} {}", augment.hue, augment.gamma);
    if (is_video_name(cut.file.path)) all += " " + clip_text(cut.bucket, cut.clip);
  }
  return all;
}

PictureSizes picture_sizes(const Recipe& recipe, const Prompt& prompt) {
  PictureSizes sizes;
  for (const auto& [input, spec] : recipe.pictures) {
    const auto cut = prompt.pictures.find(input);
    const Bucket bucket = cut == prompt.pictures.end() ? Bucket{1, 1} : cut->second.bucket;
    sizes[input] = size_of(spec, bucket);
  }
  return sizes;
}

std::vector<int64_t> picture_places(const Recipe& recipe, const std::string& encoder, const PictureSizes& sizes) {
  std::vector<int64_t> places;
  for (const auto& [input, spec] : recipe.pictures)
    if (spec.encoder == encoder)
      places.push_back(sizes.at(input).width / spec.multiple * (sizes.at(input).height / spec.multiple));
  return places;
}

int64_t tokens_with_pictures(const Recipe& recipe, const std::string& encoder, const PictureSizes& sizes) {
  const std::vector<int64_t> places = picture_places(recipe, encoder, sizes);
  return std::accumulate(places.begin(), places.end(), recipe.tokenizers.at(encoder).length);
}

std::map<std::string, int64_t> picture_dimensions(const PictureSizes& sizes, const std::map<std::string, int64_t>& at) {
  std::map<std::string, int64_t> told;
  for (const auto& [input, size] : sizes) {
    told[input + "_height"] = size.height;
    told[input + "_width"] = size.width;
    if (const auto first = at.find(input); first != at.end()) told[input + "_at"] = first->second;
  }
  return told;
}

HostTensor picture(const PictureSpec& spec, const ImageCut& cut) {
  const Bucket size = size_of(spec, cut.bucket);
  const Image whole = CutReader().read(cut).front();
  const Image scaled =
      spec.side > 0 ? stretch(whole, size.width, size.height) : resize_and_crop(whole, size.width, size.height);
  return images_to_tensor(std::array{scaled}, cut.flip);
}

}  // namespace lh
