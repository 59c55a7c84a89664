// Requests from a configuration, and latents to images.
#include "sample/sampling.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/value.h"
#include "core/error.h"
#include "core/log.h"
#include "data/animation.h"
#include "data/caption.h"
#include "data/further_images.h"
#include "data/read_cut.h"
#include "data/video.h"
#include "encode/latent_encoding.h"

namespace lh {

SampleRequest complete_request(const SampleConfig& config, const Recipe& recipe, const SampleItem& item, uint64_t seed,
                               const std::vector<LevelShare>& shares) {
  const auto of_item = [&](bool its) { return its ? fmt::format(" for the prompt \"{}\"", item.prompt) : ""; };
  const int64_t step = recipe.latents.pixel_step();
  const int64_t width = item.width.value_or(config.width), height = item.height.value_or(config.height);
  if (width % step != 0 || height % step != 0)
    fail(Code::config, "sample.width and sample.height must be multiples of {} for this model, are {} and {}{}", step,
         width, height, of_item(item.width || item.height));
  const int64_t asked = item.num_frames.value_or(config.num_frames);
  if (asked > 1 && !recipe.latents.time)
    fail(Code::config, "sample.num_frames: {}: this is a model of images, expected 1{}", asked,
         of_item(item.num_frames.has_value()));
  if (asked > 1 && !writes_animations())
    fail(Code::config, "sample.num_frames: {}: clips are written by libwebp, without which this lora-host was built",
         asked);
  const int64_t frames = recipe.latents.frames(recipe.latents.times(asked));
  const int64_t sound = recipe.sound ? recipe.sound->rows_of(frames) : 0;
  if (const std::string why = why_no_videos(); sound > 0 && !why.empty())
    fail(Code::config, "model.sound: clips with sound are written by FFmpeg: {}", why);
  const double fps = item.fps.value_or(config.fps);
  if (sound > 0 && fps != recipe.sound->frame_rate)
    log_warning(
        "sample.fps is {} and model.frame_rate {}, by which the sound is made: the clip is shown faster or slower than "
        "it sounds. Set both to one number",
        fps, recipe.sound->frame_rate);
  SampleConfig own = config;
  if (item.guidance_scale) own.guidance_scale = item.guidance_scale;
  if (item.renorm_cfg) own.renorm_cfg = item.renorm_cfg;
  if (item.cfg_trunc_ratio) own.cfg_trunc_ratio = item.cfg_trunc_ratio;
  own.guidance_rescale = item.guidance_rescale.value_or(config.guidance_rescale);
  own.do_cfg_norm = item.do_cfg_norm.value_or(config.do_cfg_norm);
  std::vector<Guidance> by_share;
  for (const LevelShare& share : shares) by_share.push_back(guidance_of(own, share.model->recipe()));
  const int64_t steps = item.sample_steps.value_or(config.sample_steps);
  return {.prompt = item.prompt,
          .negative = item.neg.value_or(config.neg),
          .width = width,
          .height = height,
          .frames = frames,
          .steps = steps > 0 ? steps : recipe.sampling.steps,
          .sound = sound,
          .fps = fps,
          .guidance = guidance_of(own, recipe),
          .by_share = std::move(by_share),
          .seed = item.seed ? static_cast<uint64_t>(*item.seed) : seed,
          .strength = item.network_multiplier.value_or(config.network_multiplier)};
}

namespace {

// The images of each request, checked.
std::vector<ImageFiles> images_of(const SampleConfig& config, const Recipe& recipe) {
  const ImageKeys keys = recipe.image_keys_of_samples();
  std::vector<ImageFiles> all(config.prompts.size());
  if (all.empty()) return all;
  ImagePaths paths_of = config.images;  // by key, one for all prompts or one for each
  for (const SampleItem& item : config.prompts)
    for (const auto& [key, path] : item.images)
      if (!paths_of.contains(key)) paths_of[key] = {path};
  if (const auto wrong = problems_of_images("sample.images", paths_of, keys); !wrong.empty())
    fail(Code::config, "{}", fmt::join(wrong, "\n"));
  for (const auto& [key, paths] : paths_of) {
    const bool for_all = config.images.contains(key);
    if (for_all && paths.size() != 1 && paths.size() != all.size())
      fail(Code::config, "{}sample.images.{}: expected one file, or one for each of the {} prompts, found {}",
           paths[0].place(), key, all.size(), paths.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const auto own = config.prompts[i].images.find(key);
      if (own == config.prompts[i].images.end() && !for_all && !keys.needed.contains(key)) continue;
      if (own == config.prompts[i].images.end() && !for_all)
        fail(Code::config, "sample.prompts: \"{}\" has no image `{}`, but others have", config.prompts[i].prompt, key);
      const GivenValue& path = own != config.prompts[i].images.end() ? own->second : paths[paths.size() == 1 ? 0 : i];
      all[i][key] = open_image(schema::expand_home(path.text));
    }
  }
  for (size_t i = 0; recipe.inpaints() && i < all.size(); ++i) {
    const ImageFile &image = all[i].at(inpaint_image_key), &mask = all[i].at(inpaint_mask_key);
    if (!same_shape(image.size, mask.size))
      fail(Code::data, "sample.images.mask: {} has {} x {} pixels, and its image {} {} x {}: expected the same shape",
           mask.path.string(), mask.size.width, mask.size.height, image.path.string(), image.size.width,
           image.size.height);
  }
  return all;
}

}  // namespace

ImageCut SampleRequest::cut() const {
  ImageCut cut{.file = {}, .bucket = bucket()};
  const auto image = images.find(inpaint_image_key), mask = images.find(inpaint_mask_key);
  if (image != images.end()) cut.file = image->second;
  if (mask != images.end()) cut.inpaint = InpaintMask{mask->second};
  return cut;
}

std::string unused_negative(const std::vector<SampleRequest>& requests, const Recipe& recipe) {
  const auto unused = [](const SampleRequest& r) { return !r.negative.empty() && !r.asked_without(); };
  if (std::ranges::none_of(requests, unused)) return "";
  return std::string("a negative prompt has no effect: ") +
         (recipe.guided() ? "this model is given guidance as a number, and is not asked a second time"
                          : "guidance_scale is 1, with which the model is not asked a second time. Raise it, or leave "
                            "the negative prompt out");
}

std::vector<SampleRequest> requests_of(const Config& config, const Recipe& recipe,
                                       const std::vector<LevelShare>& shares) {
  std::vector<SampleRequest> requests;
  std::vector<ImageFiles> images = images_of(config.sample, recipe);
  for (const SampleItem& item : config.sample.prompts) {
    const size_t walked = config.sample.walk_seed ? requests.size() : 0;
    SampleItem asked = item;
    asked.prompt = replace_trigger(item.prompt, config.trigger_word);
    requests.push_back(
        complete_request(config.sample, recipe, asked, static_cast<uint64_t>(config.sample.seed) + walked, shares));
    requests.back().images = std::move(images[requests.size() - 1]);
  }
  if (const std::string unused = unused_negative(requests, recipe); !unused.empty()) log_info("{}", unused);
  if (std::ranges::any_of(requests, [](const SampleRequest& r) { return r.prompt.find("<lora:") != r.prompt.npos; }))
    log_warning(
        "<lora:NAME:STRENGTH> in a prompt is read as words here: give the file with --lora FILE:STRENGTH, or in a run "
        "with model.inference_lora_path");
  return requests;
}

Prompt SampleRequest::wanted(const Recipe& recipe) const { return {recipe, prompt, images, cut()}; }

bool SampleRequest::asked_without() const {
  return guidance.classifier_free || std::ranges::any_of(by_share, &Guidance::classifier_free);
}

SampleRequest SampleRequest::in_share(size_t share) const {
  SampleRequest request = *this;
  if (!by_share.empty()) request.guidance = by_share.at(share);
  return request;
}

Prompt SampleRequest::unwanted(const Recipe& recipe) const {
  Prompt words(recipe, negative, images, cut());
  words.negative =
      std::ranges::any_of(recipe.tokenizers, [](const auto& t) { return t.second.negative_text.has_value(); });
  return words;
}

std::vector<Prompt> prompts_of(const std::vector<SampleRequest>& requests, const Recipe& recipe) {
  std::vector<Prompt> prompts;
  for (const SampleRequest& request : requests) {
    prompts.push_back(request.wanted(recipe));
    if (request.asked_without()) prompts.push_back(request.unwanted(recipe));
  }
  return prompts;
}

std::vector<ImageCut> cuts_of(const std::vector<SampleRequest>& requests, const ImageInputs& images) {
  std::vector<ImageCut> cuts;
  for (const SampleRequest& request : requests)
    for (ImageCut& cut : images.to_encode(request.images, request.cut())) cuts.push_back(std::move(cut));
  return cuts;
}

std::shared_ptr<const Weights> Decoder::bind(std::byte* arena, std::shared_ptr<const Weights> weights) {
  if (!plan_.grid.whole()) log_info("the VAE decodes images of {}", plan_.text());
  weights_ =
      weights ? std::move(weights) : std::make_shared<const Weights>(vae_.device, vae_.model.checkpoint(), plan_.graph);
  program_ = std::make_unique<Program>(vae_.device, plan_.graph, plan_.plan, arena, weights_->bind(plan_.graph));
  return weights_;
}

void require_finite_sample(const HostTensor& latents) {
  if (all_finite(latents)) return;
  fail(Code::numeric,
       "a sample: its latents have a NaN or infinity, so the denoiser or its LoRA overflows. Use train.dtype: bf16 or "
       "fp32, or lower train.lr");
}

std::vector<Image> Decoder::decode(const HostTensor& latents) {
  require_finite_sample(latents);
  const HostTensor image = in_tiles(latents, plan_.grid, plan_.pixels(), [&](const HostTensor& tile) {
    program_->set_input("latents", tile);
    program_->run();
    return converted(program_->output("image"), DType::f32);
  });
  vae_.require_finite(VaeRole::decode, image, "a sample");
  return tensor_to_images(image);
}

}  // namespace lh
