// Requests from a configuration, and latents to images.
#include "sample/sampling.h"

#include <spdlog/spdlog.h>

#include "config/value.h"
#include "core/error.h"
#include "data/caption.h"
#include "data/further_images.h"
#include "encode/latent_encoding.h"

namespace lh {

SampleRequest complete_request(const SampleConfig& config, const Recipe& recipe, const std::string& prompt,
                               uint64_t seed) {
  const int64_t step = recipe.latents.pixel_step();
  if (config.width % step != 0 || config.height % step != 0)
    fail(Code::config, "sample.width and sample.height must be multiples of {} for this model, are {} and {}", step,
         config.width, config.height);
  return {.prompt = prompt,
          .negative = config.neg,
          .width = config.width,
          .height = config.height,
          .steps = config.sample_steps > 0 ? config.sample_steps : recipe.sampling.steps,
          .guidance = guidance_of(config, recipe),
          .seed = seed};
}

namespace {

// The images of each request, checked.
std::vector<ImageFiles> images_of(const SampleConfig& config, const std::set<std::string>& keys) {
  std::vector<ImageFiles> all(config.prompts.size());
  if (all.empty()) return all;
  if (const auto wrong = problems_of_images("sample.images", config.images, keys); !wrong.empty())
    fail(Code::config, "{}", fmt::join(wrong, "\n"));
  for (const auto& [key, paths] : config.images) {
    if (paths.size() != 1 && paths.size() != all.size())
      fail(Code::config, "{}sample.images.{}: expected one file, or one for each of the {} prompts, found {}",
           paths[0].place(), key, all.size(), paths.size());
    std::vector<ImageFile> files;
    for (const GivenValue& path : paths) files.push_back(open_image(schema::expand_home(path.text)));
    for (size_t i = 0; i < all.size(); ++i) all[i][key] = files[files.size() == 1 ? 0 : i];
  }
  return all;
}

}  // namespace

std::vector<SampleRequest> requests_of(const Config& config, const Recipe& recipe) {
  std::vector<SampleRequest> requests;
  std::vector<ImageFiles> images = images_of(config.sample, recipe.image_keys());
  for (const std::string& prompt : config.sample.prompts) {
    const size_t walked = config.sample.walk_seed ? requests.size() : 0;
    requests.push_back(complete_request(config.sample, recipe, replace_trigger(prompt, config.trigger_word),
                                        static_cast<uint64_t>(config.sample.seed) + walked));
    requests.back().images = std::move(images[requests.size() - 1]);
  }
  return requests;
}

std::vector<std::string> prompts_of(const std::vector<SampleRequest>& requests) {
  std::vector<std::string> prompts;
  for (const SampleRequest& request : requests) {
    prompts.push_back(request.prompt);
    if (request.guidance.classifier_free) prompts.push_back(request.negative);
  }
  return prompts;
}

std::vector<ImageCut> cuts_of(const std::vector<SampleRequest>& requests, const ImageInputs& images) {
  std::vector<ImageCut> cuts;
  for (const SampleRequest& request : requests)
    for (ImageCut& cut : images.to_encode(request.images, request.bucket())) cuts.push_back(std::move(cut));
  return cuts;
}

void Decoder::bind(std::byte* arena) {
  if (!plan_.grid.whole()) spdlog::info("the VAE decodes images of {}", plan_.text());
  weights_.emplace(vae_.device, vae_.model.checkpoint(), plan_.graph);
  program_ = std::make_unique<Program>(vae_.device, plan_.graph, plan_.plan, arena, weights_->bind(plan_.graph));
}

Image Decoder::decode(const HostTensor& latents) {
  if (!all_finite(latents))
    fail(
        Code::numeric,
        "a sample: its latents have a NaN or infinity, so the denoiser or its LoRA overflows. Use train.dtype: bf16 or "
        "fp32, or lower train.lr");
  const HostTensor image = in_tiles(latents, plan_.grid, plan_.pixels(), [&](const HostTensor& tile) {
    program_->set_input("latents", tile);
    program_->run();
    return converted(program_->output("image"), DType::f32);
  });
  vae_.require_finite(VaeRole::decode, image, "a sample");
  return tensor_to_image(image);
}

}  // namespace lh
