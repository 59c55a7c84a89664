#include "encode/image_inputs.h"

#include <algorithm>
#include <array>

#include "data/inpaint_mask.h"
#include "data/read_cut.h"
#include "encode/latent_shape.h"

namespace lh {
namespace {

using Source = InputSpec::Source;

// The mean of all channels and pixels of each place: [1, H, W, 3] in [-1, 1] -> [1, H / d, W / d, 1] in [0, 1].
HostTensor mask_of(const HostTensor& pixels, int64_t downscale) {
  const int64_t h = pixels.desc.shape[1] / downscale, w = pixels.desc.shape[2] / downscale;
  HostTensor mask(Desc{DType::f32, {1, h, w, 1}});
  const std::span<const float> from = pixels.as<float>();
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) {
      double sum = 0;
      for (int64_t row = y * downscale; row < (y + 1) * downscale; ++row)
        for (int64_t i = 0; i < 3 * downscale; ++i) sum += from[static_cast<size_t>((row * w + x) * 3 * downscale + i)];
      const double mean = sum / static_cast<double>(3 * downscale * downscale);
      mask.as<float>()[static_cast<size_t>(y * w + x)] = static_cast<float>((mean + 1) / 2);
    }
  return mask;
}

// The pixels of each place, row by row: [H, W] -> [1, H / d, W / d, d d].
HostTensor by_place(const std::vector<uint8_t>& mask, const Bucket& size, int64_t downscale) {
  HostTensor out(Desc{DType::f32, {1, size.height / downscale, size.width / downscale, downscale * downscale}});
  size_t i = 0;
  for (int64_t top = 0; top < size.height; top += downscale)
    for (int64_t left = 0; left < size.width; left += downscale)
      for (int64_t y = top; y < top + downscale; ++y)
        for (int64_t x = left; x < left + downscale; ++x)
          out.as<float>()[i++] = mask[static_cast<size_t>(y * size.width + x)];
  return out;
}

// Of a sample that is trained on its own, of others the picture that they may have.
bool is_given(const InputSpec& first_frame, const ImageFiles& images, const ImageCut& own) {
  const bool trained = !own.file.path.empty();
  return images.contains(first_frame.of) || (trained && (own.goes_on || !first_frame.optional));
}

ImageCut cut_of(const InputSpec& first_frame, const ImageFiles& images, ImageCut own) {
  if (first_frame.starts) own.bucket.frames = 1;
  return first_frame_cut(first_frame.of, images, own);
}

}  // namespace

ImageCut further_cut(const ImageFile& file, const ImageCut& own) {
  return {file, own.bucket, own.flip, {.at = own.augment.at}};
}

ImageCut first_frame_cut(const std::string& key, const ImageFiles& images, const ImageCut& own) {
  ImageCut cut = own;
  if (const auto given = images.find(key); given != images.end()) cut.file = given->second;
  cut.only_first = own.bucket.frames > 1;
  return cut;
}

std::vector<ImageCut> ImageInputs::to_encode(const ImageFiles& images, const ImageCut& own) const {
  std::vector<ImageCut> cuts;
  for (const auto& [name, spec] : recipe_.inputs) {
    if (spec.source == Source::image && spec.image == InputSpec::Image::latents)
      cuts.push_back(further_cut(images.at(spec.of), own));
    if (spec.source == Source::inpaint && spec.of == inpaint_image_key) cuts.push_back(own);
    if (spec.source == Source::first_frame && is_given(spec, images, own)) cuts.push_back(cut_of(spec, images, own));
  }
  return cuts;
}

std::vector<ImageCut> ImageInputs::to_encode(const Dataset& dataset) const {
  std::vector<ImageCut> cuts;
  for (const auto* samples : {&dataset.samples, &dataset.validation}) {
    const bool drawn = samples == &dataset.samples;  // validation has images as they are, and one mask
    const auto cuts_of = [&](const Sample& sample) {
      return drawn ? sample.cuts() : std::vector<ImageCut>{sample.cut()};
    };
    for (const Sample& sample : *samples)
      for (ImageCut& cut : cuts_of(sample)) cuts.push_back(std::move(cut));
    for (const Sample& sample : *samples) {
      const int64_t masks = drawn ? std::max<int64_t>(1, sample.inpaint_masks) : 1;
      for (const ImageCut& cut : cuts_of(sample))
        for (int64_t i = 0; i < masks; ++i)
          for (ImageCut& other : to_encode(sample.images, sample.with_mask(cut, i))) cuts.push_back(std::move(other));
    }
  }
  return cuts;
}

HostTensor ImageInputs::left_by_mask(const ImageCut& own, Random posterior) {
  const LatentSpec& spec = recipe_.latents;
  HostTensor latents(
      Desc{DType::f32, {1, own.bucket.height / spec.downscale, own.bucket.width / spec.downscale, spec.channels}});
  latents_.draw(own, posterior, latents.as<float>());
  return latents;
}

NamedTensors ImageInputs::make(const ImageFiles& images, const ImageCut& own, Random posterior) {
  NamedTensors out;
  for (const auto& [name, spec] : recipe_.inputs) {
    if (spec.source == Source::inpaint)
      out.emplace(name, spec.of == inpaint_mask_key ? by_place(inpaint_mask(own), own.bucket, recipe_.latents.downscale)
                                                    : left_by_mask(own, posterior));
    if (spec.source == Source::given)
      out.emplace(name, HostTensor::from_floats({1}, std::array{is_given(spec, images, own) ? 1.0f : 0.0f}));
    if (spec.source == Source::first_frame) {
      const LatentSpec& latents = recipe_.latents;
      const ImageCut cut = cut_of(spec, images, own);
      const Shape shape = latent_shape(latents, latent_sizes(latents, cut.bucket), 1, latents.channels);
      out.emplace(name, is_given(spec, images, own) ? latents_.mean(cut) : HostTensor(Desc{DType::f32, shape}));
    }
    if (spec.source != Source::image) continue;
    const ImageCut cut = further_cut(images.at(spec.of), own);
    if (spec.image == InputSpec::Image::latents) {
      out.emplace(name, latents_.mean(cut));
      continue;
    }
    HostTensor pixels = images_to_tensor(std::array{read_cut(cut)}, own.flip);
    out.emplace(
        name, spec.image == InputSpec::Image::pixels ? std::move(pixels) : mask_of(pixels, recipe_.latents.downscale));
  }
  return out;
}

}  // namespace lh
