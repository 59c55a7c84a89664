// Rows of a batch, sample by sample.
#include "train/batch_maker.h"

#include "core/rows.h"

namespace lh {

NoiseLevel BatchMaker::draw(const Sample& sample, uint64_t draw, uint32_t lane, std::span<float> noisy,
                            std::span<float> target) {
  const TrainSection& train = p_.config.train;
  const LatentSpec& latents = p_.model.recipe().latents;
  const auto seed = static_cast<uint64_t>(train.seed);
  std::vector<float> x0(noisy.size()), noise(noisy.size());
  p_.latents.draw(sample.cut(), Random(seed, Purpose::posterior, draw, lane), x0);
  Random(seed, Purpose::noise, draw, lane).fill_normal(noise);
  if (train.noise_offset > 0)
    add_noise_offset(noise, latents.channels, train.noise_offset, Random(seed, Purpose::noise_offset, draw, lane));
  Random time(seed, Purpose::timestep, draw, lane);
  const int64_t places = static_cast<int64_t>(noisy.size()) / latents.channels;
  const NoiseLevel level = p_.objective.draw(time, places / (latents.multiple * latents.multiple));
  p_.objective.make_pair(x0, noise, level, noisy, target);
  return level;
}

const std::string& BatchMaker::caption(const Sample& sample, uint64_t draw, uint32_t lane) const {
  const auto seed = static_cast<uint64_t>(p_.config.train.seed);
  const bool dropped = sample.caption_dropout_rate > 0 &&
                       Random(seed, Purpose::caption_dropout, draw, lane).uniform() < sample.caption_dropout_rate;
  return dropped ? dropped_caption : sample.caption;
}

StepInputs BatchMaker::make(const Batch& batch, const StepShape& shape, int64_t micro_step) {
  const LatentSpec& spec = p_.model.recipe().latents;
  const auto size = static_cast<int64_t>(batch.samples.size());
  const Sizes sizes = shape.sizes(spec, size);
  const int64_t h = sizes.at("height"), w = sizes.at("width");
  const auto count = static_cast<size_t>(h * w * spec.channels);
  const auto draw = static_cast<uint64_t>(micro_step);

  HostTensor latents(Desc{DType::f32, {size, h, w, spec.channels}}), target(latents.desc);
  std::vector<float> weights;
  std::vector<InputRow> rows;
  std::vector<TensorCache::Entry> conditionings;  // that rows point to
  std::map<std::string, std::vector<const HostTensor*>> tokens;
  for (int64_t j = 0; j < size; ++j) {
    const auto lane = static_cast<uint32_t>(j);
    const Sample& sample = p_.dataset.samples[static_cast<size_t>(batch.samples[static_cast<size_t>(j)])];
    const size_t at = static_cast<size_t>(j) * count;
    InputRow row{.level = this->draw(sample, draw, lane, latents.as<float>().subspan(at, count),
                                     target.as<float>().subspan(at, count)),
                 .guidance = p_.config.train.cfg_scale,
                 .sizes = image_numbers(sample),
                 .images = p_.images.make(sample.images, sample.bucket, sample.flip)};
    const std::string& words = caption(sample, draw, lane);
    if (p_.selection.text_encoders())
      for (const auto& [name, ids] : p_.text.tokens(words)) tokens[name].push_back(&ids);
    else
      row.conditioning = conditionings.emplace_back(p_.text.at(words)).get();
    weights.push_back(row.level.weight);
    rows.push_back(std::move(row));
  }

  StepInputs in{inputs_.batch(rows, sizes), static_cast<int32_t>(micro_step)};
  for (const auto& [name, ids] : tokens) in.tensors[name] = stack_rows(ids);
  in.tensors["latents"] = std::move(latents);
  in.tensors["target"] = std::move(target);
  in.tensors["loss_weight"] = HostTensor::from_floats({size}, weights);
  return in;
}

}  // namespace lh
