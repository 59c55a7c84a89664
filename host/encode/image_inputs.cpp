#include "encode/image_inputs.h"

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

}  // namespace

std::vector<ImageCut> ImageInputs::to_encode(const ImageFiles& images, const Bucket& bucket, Flip flip,
                                             CropAt at) const {
  std::vector<ImageCut> cuts;
  for (const auto& [name, spec] : recipe_.inputs)
    if (spec.source == Source::image && spec.image == InputSpec::Image::latents)
      cuts.push_back({images.at(spec.of), bucket, flip, {.at = at}});
  return cuts;
}

std::vector<ImageCut> ImageInputs::to_encode(const Dataset& dataset) const {
  std::vector<ImageCut> cuts;
  for (const auto* samples : {&dataset.samples, &dataset.validation}) {
    const auto cuts_of = [&](const Sample& sample) {  // validation has images as they are
      return samples == &dataset.samples ? sample.cuts() : std::vector<ImageCut>{sample.cut()};
    };
    for (const Sample& sample : *samples)
      for (ImageCut& cut : cuts_of(sample)) cuts.push_back(std::move(cut));
    for (const Sample& sample : *samples) {
      if (sample.images.empty()) continue;
      for (const ImageCut& cut : cuts_of(sample))
        for (ImageCut& other : to_encode(sample.images, sample.bucket, sample.flip, cut.augment.at))
          cuts.push_back(std::move(other));
    }
  }
  return cuts;
}

NamedTensors ImageInputs::make(const ImageFiles& images, const Bucket& bucket, Flip flip, CropAt at) {
  NamedTensors out;
  for (const auto& [name, spec] : recipe_.inputs) {
    if (spec.source != Source::image) continue;
    const ImageCut cut{images.at(spec.of), bucket, flip, {.at = at}};
    if (spec.image == InputSpec::Image::latents) {
      out.emplace(name, latents_.mean(cut));
      continue;
    }
    HostTensor pixels = image_to_tensor(read_cut(cut), flip);
    out.emplace(
        name, spec.image == InputSpec::Image::pixels ? std::move(pixels) : mask_of(pixels, recipe_.latents.downscale));
  }
  return out;
}

}  // namespace lh
