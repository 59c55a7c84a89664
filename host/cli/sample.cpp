// lora-host sample: images from prompts, with LoRA files applied.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "cli/commands.h"
#include "cli/expert_loras.h"
#include "cli/picture_files.h"
#include "compile/model_loras.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "data/further_images.h"
#include "encode/check_model.h"
#include "encode/try_model.h"
#include "plugin/registry.h"
#include "run/fit_forward.h"
#include "sample/generation_parameters.h"
#include "sample/sample_set.h"
#include "train/prepare.h"

namespace lh {

int run_sample(const Options& options) {
  const Config& config = options.config;
  if (config.sample.prompts.empty())
    fail(Code::config, "sample: give at least one --prompt, or sample.prompts in the config");
  const Registry& registry = *options.registry;
  const std::set<std::string> images_of = keys_of_images(config.sample);
  try_model(registry, config.model, config.plugin, compute_dtype(config.train.dtype), images_of);
  Device device(config.device);
  const int64_t limit = memory_limit(config, device);
  Model model(registry, config.model, config.plugin, images_of);
  LorasByExpert loras = loras_by_expert(registry, model, options.loras);
  std::vector<LoraInput> shown = loras_in_samples(registry, config.model, model);
  for (const auto& [name, files] : loras) std::ranges::copy(files, std::back_inserter(shown));
  std::vector<LoraInput> own = sample_loras(registry, config.model);
  const Expert* const expert = expert_of(model);
  if (expert != nullptr) std::ranges::move(loras_of_expert(registry, config.model, *expert), std::back_inserter(own));
  std::ranges::move(loras[expert != nullptr ? expert->name : ""], std::back_inserter(own));
  model.merge(own);
  OtherExperts experts(registry, config.model, model, images_of, loras);
  check_experts(model, experts, loras);
  const Recipe& recipe = model.recipe();
  check_model(model, compute_dtype(config.train.dtype));
  const DType compute = compute_dtype(config.train.dtype);
  const SamplerChoice sampler = choose_sampler(registry, recipe, config.sample);

  const std::vector<SampleRequest> requests = requests_of(config, recipe, experts.shares());
  PictureFiles files(options.output, requests, options.tool.force);
  const GenerationParameters parameters(config.model, sampler, shown);
  device.limit_memory(limit);
  TextEncoding text(device, model, encoder_dtype(device, compute), {}, limit);
  const std::vector<Prompt> prompts = prompts_of(requests, recipe);
  text.require_memory(prompts);
  text.prepare(prompts);

  const auto no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };
  if (std::ranges::any_of(requests, [](const SampleRequest& r) { return r.strength != 1; }))
    fail(Code::config,
         "sample.network_multiplier is for samples while training: give the strength with --lora FILE:STRENGTH");
  std::optional<SampleSet> made;
  const auto make = [&](const Streaming& streaming) {
    made.emplace(device, model, no_adapter, compute, sampler, requests, text.lengths(prompts), streaming, experts);
  };
  const auto room_beside = [&] {
    const Denoiser::Memory memory = made->memory();
    const Graph& graph = made->graph();
    return MemoryRoom{.limit = limit,
                      .taken = weight_bytes(graph, weight_names(graph, model.checkpoint())) + memory.constants,
                      .arena = memory.arena,
                      .workspace = memory.workspace};
  };
  const Vae vae{device, model, encoder_dtype(device, compute), config.model.vae_tile};
  LatentEncoding latents_of(vae, limit, {});
  ImageInputs images(recipe, latents_of);
  latents_of.prepare(cuts_of(requests, images));
  make({});
  made->plan_decoding(vae, room_beside());
  if (room_beside().total(made->decoding()) > limit && config.memory.stream != "0") {
    const int64_t beside = made->decoding().weights + made->decoding().constants;
    const ForwardFit fit = fit_forward(device, made->graph(), model.checkpoint(), limit - beside);
    log_info("the weights of {} of {} blocks stay in host memory ({})", fit.streamed_blocks, fit.blocks,
             size_text(fit.streamed));
    make(fit.streaming);
    made->plan_decoding(vae, room_beside());
  }
  SampleSet& set = *made;
  const Graph& graph = set.graph();
  const Denoiser::Memory memory = set.memory();
  set.require_decoding(room_beside());
  Weights weights(device, model.checkpoint(), graph);
  const DeviceMemory arena(device, std::max(memory.arena, set.decoding().arena), "activations");
  set.bind(arena.data(), weights, nullptr);
  set.bind_decoders(arena.data());
  install_signal_handlers();

  const auto write = [&](size_t i, const HostTensor& latents) {
    Sampled sampled = set.decode(requests[i], latents);
    sampled.parameters = parameters.text(requests[i], recipe);
    fmt::print("{}\n", files.write(i, sampled).string());
  };
  set.denoise(requests, text,
              {.images = [&](const SampleRequest& r) { return images.make(r.images, r.cut(), r.posterior()); },
               .stop = stop_requested,
               .use = [&](size_t share) { experts.use(share, device, weights, graph); },
               .made = write});
  return stop_requested() ? exit_interrupted : 0;
}

}  // namespace lh
