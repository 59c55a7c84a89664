// Rows of a batch, sample by sample.
#include "train/batch_maker.h"

#include <algorithm>

#include "compile/preserve.h"
#include "compile/prior.h"
#include "compile/slider.h"
#include "core/rows.h"
#include "diffusion/training_guidance.h"
#include "encode/latent_shape.h"

namespace lh {

NoiseLevel BatchMaker::draw(const Use& use, const Sizes& sizes, std::span<float> noisy, std::span<float> target) {
  const TrainSection& train = p_.config.train;
  const LatentSpec& latents = p_.model.recipe().latents;
  const auto random = [&](Purpose purpose) { return Random(use.seed, purpose, use.draw, use.lane); };
  std::vector<float> x0(noisy.size()), noise(noisy.size()), perturbed;
  p_.latents.draw(use.cut, random(Purpose::posterior), x0);
  random(Purpose::noise).fill_normal(noise);
  if (train.noise_offset > 0)
    add_noise_offset(noise, latents.channels, train.noise_offset, random(Purpose::noise_offset));
  if (train.multires_noise_iterations > 0)
    add_multires_noise(noise, sizes.at("height"), sizes.at("width"), latents.channels, train.multires_noise_iterations,
                       train.multires_noise_discount, random(Purpose::multires_noise));
  if (const double clip = p_.model.recipe().noise.clip; clip > 0) clip_noise(noise, clip);
  if (train.ip_noise_gamma > 0)
    perturbed =
        perturb(noise, train.ip_noise_gamma, train.ip_noise_gamma_random_strength, random(Purpose::input_perturbation));
  Random time = random(Purpose::timestep);
  const NoiseLevel level = p_.objective.draw(time, latent_tokens(latents, sizes), use.sample.is_reg);
  p_.objective.make_pair(x0, noise, level, noisy, target, perturbed);
  return level;
}

// The other prompts of the step's second loss, in which the noisy latents are the same.
void BatchMaker::add_preserved(const std::vector<Use>& uses, const Sizes& sizes, NamedTensors& tensors) {
  std::vector<InputRow> rows;
  std::vector<TensorCache::Entry> conditionings;  // that rows point to
  std::vector<float> weights;
  for (const Use& use : uses) {
    rows.push_back(
        {.conditioning = conditionings.emplace_back(p_.text.at(p_.shown(use.sample, *use.preserved, use.cut))).get()});
    weights.push_back(
        static_cast<float>(p_.preserved.multiplier() * (use.sample.is_reg ? p_.config.train.reg_weight : 1)));
  }
  for (auto& [name, tensor] : inputs_.of_prompts(rows, sizes)) tensors[preserved_name(name)] = std::move(tensor);
  tensors[preserved_weight] = HostTensor::from_floats({static_cast<int64_t>(uses.size())}, weights);
}

// What is heard, at the noise of what is seen. count: rows of a sample's latents.
void BatchMaker::add_sound(const std::vector<Use>& uses, const std::vector<InputRow>& rows,
                           const std::vector<float>& weights, int64_t count, NamedTensors& tensors) {
  const int64_t channels = p_.model.recipe().sound->channels;
  HostTensor noisy(Desc{DType::f32, {static_cast<int64_t>(uses.size()), count, channels}}), target(noisy.desc);
  std::vector<float> each;
  const auto size = static_cast<size_t>(count * channels);
  std::vector<float> x0(size), noise(size);
  for (size_t i = 0; i < uses.size(); ++i) {
    const Use& use = uses[i];
    const auto random = [&](Purpose purpose) { return Random(use.seed, purpose, use.draw, use.lane); };
    p_.sound->draw(use.cut, random(Purpose::sound_posterior), x0);
    random(Purpose::sound_noise).fill_normal(noise);
    p_.objective.make_pair(x0, noise, rows[i].level, noisy.as<float>().subspan(i * size, size),
                           target.as<float>().subspan(i * size, size));
    each.push_back(weights[i] * static_cast<float>(p_.config.train.audio_loss_multiplier));
  }
  tensors["sound"] = std::move(noisy);
  tensors["sound_target"] = std::move(target);
  tensors["sound_weight"] = HostTensor::from_floats({static_cast<int64_t>(uses.size())}, each);
}

// The prompts beside the class's, and what each sample counts in both parts of the loss.
void BatchMaker::add_slider(const std::vector<Use>& uses, const Sizes& sizes, NamedTensors& tensors) {
  const SliderConfig& slider = p_.slider.config();
  const auto add = [&](const std::string& front, const std::string& prompt) {
    std::vector<InputRow> rows;
    std::vector<TensorCache::Entry> conditionings;  // that rows point to
    for (const Use& use : uses)
      rows.push_back(
          {.conditioning = conditionings.emplace_back(p_.text.at(p_.shown(use.sample, prompt, use.cut))).get()});
    for (auto& [name, tensor] : inputs_.of_prompts(rows, sizes)) tensors[front + name] = std::move(tensor);
  };
  const auto weigh = [&](double share) {
    return HostTensor::from_floats({static_cast<int64_t>(uses.size())},
                                   std::vector<float>(uses.size(), static_cast<float>(share)));
  };
  add(positive_front, slider.positive_prompt);
  add(negative_front, slider.negative_prompt);
  tensors["loss_weight"] = weigh(class_share);
  if (!slider.anchor_class) return;
  add(anchor_front, *slider.anchor_class);
  tensors[anchor_weight] = weigh(anchor_share * slider.anchor_strength);
}

void BatchMaker::add_places(const Use& use, size_t count, std::vector<float>& by_mask, std::vector<float>& in_loss) {
  const std::vector<float> frame = p_.masks.at(use.sample, use.cut.augment.at);
  const size_t frames = count / frame.size();
  const bool shown = use.own.goes_on && p_.model.recipe().starts_clips();
  for (size_t i = 0; i < frames; ++i) {
    const float learnt = !shown ? 1 : i == 0 ? 0 : static_cast<float>(frames) / static_cast<float>(frames - 1);
    by_mask.insert(by_mask.end(), frame.begin(), frame.end());
    for (const float counts : frame) in_loss.push_back(counts * learnt);
  }
}

StepInputs BatchMaker::make(const std::vector<Use>& uses, const StepShape& shape, int32_t step) {
  const LatentSpec& spec = p_.model.recipe().latents;
  const auto size = static_cast<int64_t>(uses.size());
  const Sizes sizes = shape.sizes(spec);
  HostTensor latents(Desc{DType::f32, latent_shape(spec, sizes, size, spec.channels)}), target(latents.desc);
  const size_t count = latents.as<float>().size() / uses.size();
  const Shape by_place = latents.desc.shape.with(-1, 1);
  std::vector<float> weights, widths, by_mask, in_loss;
  std::vector<InputRow> rows;
  std::vector<TensorCache::Entry> conditionings;       // that rows point to
  std::vector<std::shared_ptr<const Tokens>> prompts;  // that `tokens` points to
  std::map<std::string, std::vector<const HostTensor*>> tokens;
  for (const Use& use : uses) {
    const Sample& sample = use.sample;
    const size_t at = rows.size() * count;
    InputRow row{
        .level = draw(use, sizes, latents.as<float>().subspan(at, count), target.as<float>().subspan(at, count)),
        .guidance = training_guidance(p_.config.train, p_.model.recipe()),
        .sizes = image_numbers(use.cut),
        .images =
            p_.images.make(sample.images, use.own, Random(use.seed, Purpose::inpaint_posterior, use.draw, use.lane))};
    if (p_.selection.text_encoders())
      for (const auto& [name, ids] : *prompts.emplace_back(p_.text.tokens().of(use.caption)))
        tokens[name].push_back(&ids);
    else
      row.conditioning = conditionings.emplace_back(p_.text.at(p_.shown(use.sample, use.caption, use.cut))).get();
    weights.push_back(static_cast<float>(double{row.level.weight} * sample.loss_weight *
                                         (sample.is_reg ? p_.config.train.reg_weight : 1)));
    widths.push_back(row.level.width);
    if (p_.counts_by_place()) add_places(use, count / static_cast<size_t>(spec.channels), by_mask, in_loss);
    rows.push_back(std::move(row));
  }

  StepInputs in{inputs_.batch(rows, sizes), step};
  for (const auto& [name, ids] : tokens) in.tensors[name] = stack_rows(ids);
  if (uses.front().preserved) add_preserved(uses, sizes, in.tensors);
  in.tensors["latents"] = std::move(latents);
  in.tensors["target"] = std::move(target);
  in.tensors["loss_delta"] = HostTensor::from_floats({size}, widths);
  if (p_.counts_by_place()) {
    const bool normalized = p_.config.train.mask_normalization == "batch";
    if (p_.keeps_masked()) {
      std::vector<float> hidden(by_mask.size());
      std::ranges::transform(by_mask, hidden.begin(), [](float seen) { return 1 - seen; });
      const std::vector<float> each(uses.size(), static_cast<float>(p_.config.train.inverted_mask_prior_multiplier));
      in.tensors[prior_weight] = HostTensor::from_floats(by_place, place_weights(each, std::move(hidden), normalized));
    }
    in.tensors["loss_weight"] =
        HostTensor::from_floats(by_place, place_weights(weights, std::move(in_loss), normalized));
  } else {
    in.tensors["loss_weight"] = HostTensor::from_floats({size}, weights);
  }
  if (shape.bucket.sound > 0) add_sound(uses, rows, weights, shape.bucket.sound, in.tensors);
  if (p_.slider.any()) add_slider(uses, sizes, in.tensors);
  return in;
}

std::vector<BatchMaker::Use> BatchMaker::uses_of(const Batch& batch, int64_t micro_step) const {
  const RunCourse course = p_.course();
  std::vector<Use> uses;
  for (const int64_t index : batch.samples) {
    const Sample& sample = p_.dataset.samples[static_cast<size_t>(index)];
    const auto lane = static_cast<uint32_t>(uses.size());
    Random augment(course.seed, Purpose::augment, static_cast<uint64_t>(micro_step), lane);
    const auto variant = static_cast<int64_t>(augment.below(static_cast<uint64_t>(sample.augment_variants)));
    const std::string caption =
        p_.slider.any() ? p_.slider.config().target_class : caption_at(course, sample, micro_step, lane);
    const ImageCut cut = sample.cut(variant);
    Random mask(course.seed, Purpose::inpaint, static_cast<uint64_t>(micro_step), lane);
    const auto masks = static_cast<uint64_t>(std::max<int64_t>(1, sample.inpaint_masks));
    const ImageCut own = sample.with_mask(cut, static_cast<int64_t>(mask.below(masks)));
    uses.push_back({sample, cut, own, caption,
                    p_.preserved.any() ? std::optional(p_.preserved.of(sample, caption)) : std::nullopt, course.seed,
                    static_cast<uint64_t>(micro_step), lane});
  }
  return uses;
}

StepInputs BatchMaker::make(const Batch& batch, const StepShape& shape, int64_t micro_step) {
  return make(uses_of(batch, micro_step), shape, static_cast<int32_t>(micro_step));
}

void BatchMaker::will_need(const Batch& batch, int64_t micro_step) {
  for (const Use& use : uses_of(batch, micro_step)) {
    p_.latents.will_need(use.cut);
    if (p_.sound) p_.sound->will_need(use.cut);
    for (const ImageCut& cut : p_.images.to_encode(use.sample.images, use.own)) p_.latents.will_need(cut);
    if (!p_.selection.text_encoders()) p_.text.will_need(p_.shown(use.sample, use.caption, use.cut));
  }
}

StepInputs BatchMaker::validation(const Sample& sample, const StepShape& shape, int64_t level) {
  const ImageCut cut = sample.cut(), own = sample.with_mask(cut, 0);
  return make({{sample, cut, own, sample.caption, std::nullopt, p_.validation_seed(), sample.number(),
                static_cast<uint32_t>(level)}},
              shape, 0);
}

}  // namespace lh
