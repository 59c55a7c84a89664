#include "sample/sampling.h"

#include <spdlog/spdlog.h>

#include "core/error.h"
#include "train/latent_encoding.h"
#include "train/objective.h"
#include "train/random.h"

namespace lh {
namespace {

HostTensor scalar(double value) {
  const auto v = static_cast<float>(value);
  return HostTensor::from_floats({1}, std::span(&v, 1));
}

// Classifier-free guidance is needed where the model has no guidance input of its own.
bool classifier_free(const SampleRequest& request, const Recipe& recipe) {
  return !recipe.guidance && request.guidance != 1;
}

// A sampler's stage graph for one latent shape.
class Stage {
 public:
  Stage(Device& device, const Offered<lh_sampler>& sampler, uint32_t stage, const Shape& latents) {
    Graph graph(DType::f32);
    lh_graph building{.host = sampler.host, .graph = &graph};
    const lh_desc desc = to_abi({DType::f32, latents});
    const lh_status status = sampler.descriptor->build_stage(&building, stage, &desc);
    if (!building.error.empty()) fail(Code::plugin, "sampler '{}': {}", sampler.descriptor->id, building.error);
    if (status != LH_OK) fail(Code::plugin, "sampler '{}': {}", sampler.descriptor->id, sampler.host->failure);
    for (const char* const* name = sampler.descriptor->carried; name != nullptr && *name != nullptr; ++name)
      carried_.emplace(*name, HostTensor(Desc{DType::f32, latents}));
    program_ = OwnedProgram(device, std::move(graph), {}, "sampler");
  }
  HostTensor run(const HostTensor& x, const HostTensor& model_out, double sigma, double sigma_next) {
    Program& program = *program_;
    program.set_input("x", x);
    program.set_input("model_out", model_out);
    if (program.graph().inputs.contains("sigma")) program.set_input("sigma", scalar(sigma));
    if (program.graph().inputs.contains("sigma_next")) program.set_input("sigma_next", scalar(sigma_next));
    for (const auto& [name, value] : carried_) program.set_input(name, value);
    program.run();
    for (auto& [name, value] : carried_) value = program.output(name);
    return program.output("x");
  }

 private:
  OwnedProgram program_;
  std::map<std::string, HostTensor> carried_;
};

}  // namespace

SampleRequest complete_request(const SampleConfig& config, const Recipe& recipe, const std::string& prompt,
                               uint64_t seed) {
  const int64_t step = recipe.latents.pixel_step();
  if (config.width % step != 0 || config.height % step != 0)
    fail(Code::config, "sample.width and sample.height must be multiples of {} for this model, are {} and {}", step,
         config.width, config.height);
  return {prompt,        config.neg,          config.width,
          config.height, config.sample_steps, config.guidance_scale.value_or(recipe.sampling.guidance),
          seed};
}

Offered<lh_sampler> find_sampler(const Registry& registry, const Recipe& recipe, const std::string& id) {
  const Offered<lh_sampler> sampler = registry.sampler(id.empty() ? recipe.sampling.sampler : id);
  const lh_sampler& found = *sampler.descriptor;
  if (found.objective != recipe.objective)
    fail(Code::config, "sampler '{}' integrates '{}' models, this one is '{}'", found.id, found.objective,
         recipe.objective);
  if (found.stages != 1)
    fail(Code::plugin, "sampler '{}' has {} stages; this host runs samplers of one stage", found.id, found.stages);
  return sampler;
}

std::vector<std::string> prompts_of(const std::vector<SampleRequest>& requests, const Recipe& recipe) {
  std::vector<std::string> prompts;
  for (const SampleRequest& request : requests) {
    prompts.push_back(request.prompt);
    if (classifier_free(request, recipe)) prompts.push_back(request.negative);
  }
  return prompts;
}

Denoiser::Denoiser(Device& device, const Model& model, const SelectAdapter& select, DType compute, int64_t width,
                   int64_t height, int64_t text_length)
    : device_(device), model_(model), graph_(compute) {
  const Recipe& recipe = model.recipe();
  Sizes sizes{{"batch", 1},
              {"height", height / recipe.latents.downscale},
              {"width", width / recipe.latents.downscale},
              {"text_length", text_length}};
  graph_ = build_sample_graph(model, sizes, select, compute);
  require_plain_latents(graph_, recipe);
  plan_ = plan_memory(graph_, parameters(graph_));
}

void Denoiser::bind(std::byte* arena, const Weights& weights, const Adapters* adapters) {
  Externals externals = weights.bind(graph_);
  if (adapters != nullptr) adapters->bind(graph_, externals);
  program_ = std::make_unique<Program>(device_, graph_, plan_, arena, externals);
}

HostTensor Denoiser::evaluate(const HostTensor& x, double sigma, const Conditioning& conditioning, double guidance) {
  program_->set_input("latents", x);
  program_->set_input("timestep", scalar(sigma));
  program_->set_input("text", *conditioning.text);
  program_->set_input("pooled", *conditioning.pooled);
  if (graph_.inputs.contains("guidance")) program_->set_input("guidance", scalar(guidance));
  program_->run();
  return converted(program_->output("output"), DType::f32);
}

HostTensor Denoiser::sample(const SampleRequest& request, const std::string& sampler_id, const Registry& registry,
                            TextEncoding& text, const std::function<bool()>& cancelled) {
  const Recipe& recipe = model_.recipe();
  const Offered<lh_sampler> sampler = find_sampler(registry, recipe, sampler_id);
  const Shape shape = graph_.desc(graph_.inputs.at("latents")).shape;
  const int64_t tokens = shape[1] * shape[2] / (recipe.latents.multiple * recipe.latents.multiple);
  const std::vector<double> sigmas = flow_sigmas(recipe.sampling, recipe.timestep, request.steps, tokens);
  HostTensor x(Desc{DType::f32, shape});
  Random(request.seed, Purpose::sample_noise, 0, 0).fill_normal(x.as<float>());
  Stage stage(device_, sampler, 0, shape);
  const bool guided = classifier_free(request, recipe);
  for (size_t i = 0; i + 1 < sigmas.size() && !cancelled(); ++i) {
    HostTensor out = evaluate(x, sigmas[i], text.at(request.prompt), request.guidance);
    if (guided) {
      const HostTensor without = evaluate(x, sigmas[i], text.at(request.negative), request.guidance);
      const auto g = static_cast<float>(request.guidance);
      const std::span<const float> u = without.as<float>();
      const std::span<float> o = out.as<float>();
      for (size_t k = 0; k < o.size(); ++k) o[k] = u[k] + g * (o[k] - u[k]);
    }
    x = stage.run(x, out, sigmas[i], sigmas[i + 1]);
  }
  return x;
}

void Decoder::bind(std::byte* arena) {
  if (!plan_.grid.whole()) spdlog::info("the VAE decodes pictures of {}", plan_.text());
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
