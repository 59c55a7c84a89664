#include "encode/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "encode/image_inputs.h"

namespace lh {
namespace {

// The sides' ratio kept as well as multiples allow, at about the area.
Bucket size_of(const PictureSpec& spec, double width, double height) {
  const auto side = [&](double ratio) {
    const double exact = std::sqrt(static_cast<double>(spec.area) * ratio) / static_cast<double>(spec.multiple);
    return std::max<int64_t>(1, std::llround(exact)) * spec.multiple;
  };
  return {side(width / height), side(height / width)};
}

}  // namespace

Prompt::Prompt(const Recipe& recipe, std::string words, const ImageFiles& images, const ImageCut& own)
    : text(std::move(words)) {
  for (const auto& [input, spec] : recipe.pictures) pictures.emplace(input, further_cut(images.at(spec.of), own));
}

std::string Prompt::identity() const {
  std::string all = negative ? "negative\n" + text : text;
  for (const auto& [input, cut] : pictures)
    all += fmt::format("\n{}={} {}x{} {}{} {} {} {}", input, cut.file.content_hash, cut.bucket.width, cut.bucket.height,
                       cut.flip.x ? "x" : "", cut.flip.y ? "y" : "", cut.augment.at.x, cut.augment.at.y,
                       cut.augment.at.scale);
  return all;
}

PictureSizes picture_sizes(const Recipe& recipe, const Prompt& prompt) {
  PictureSizes sizes;
  for (const auto& [input, spec] : recipe.pictures) {
    const auto cut = prompt.pictures.find(input);
    const Bucket bucket = cut == prompt.pictures.end() ? Bucket{1, 1} : cut->second.bucket;
    sizes[input] = size_of(spec, static_cast<double>(bucket.width), static_cast<double>(bucket.height));
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
    told[input + "_at"] = at.at(input);
  }
  return told;
}

HostTensor picture(const ImageCut& cut, const Bucket& size) {
  return images_to_tensor(std::array{resize_and_crop(read_cut(cut), size.width, size.height)}, cut.flip);
}

}  // namespace lh
