// Compiles the denoiser for one size, evaluates it with guidance, and lets a sampler integrate.
#include "sample/denoiser.h"

#include <algorithm>
#include <array>

#include "core/random.h"
#include "core/rows.h"
#include "diffusion/objective.h"
#include "encode/latent_shape.h"
#include "encode/step_shapes.h"
#include "run/workspace.h"

namespace lh {
namespace {

// Of the parts of JoinedLatents.
constexpr std::array part_inputs = {"latents", "sound"}, part_outputs = {"output", "sound_output"};

}  // namespace

Denoiser::Denoiser(Device& device, const Model& model, const SelectAdapter& select, DType compute,
                   const SamplerChoice& sampler, const SampleRequest& like, const Sizes& lengths,
                   const Streaming& streaming)
    : device_(device),
      model_(model),
      sampler_(sampler),
      like_(like),
      schedule_(
          schedule_of(sampler, model.recipe(), like.steps,
                      latent_tokens(model.recipe().latents, latent_sizes(model.recipe().latents, like.bucket())))),
      latents_(model.recipe(), like.bucket()),
      inputs_(model.recipe()),
      whole_(compile(select, compute, like.guidance.batched ? 2 : 1, lengths, {}, streaming)) {
  if (like.guidance.skip_layers)
    skipping_.emplace(compile(select, compute, 1, lengths, like.guidance.skip_layers->layers, streaming));
}

Denoiser::Compiled Denoiser::compile(const SelectAdapter& select, DType compute, int64_t batch, const Sizes& lengths,
                                     const std::vector<int64_t>& skip_layers, const Streaming& streaming) const {
  Compiled compiled;
  compiled.sizes = StepShape{like_.bucket(), lengths, batch}.sizes(model_.recipe().latents);
  compiled.graph =
      build_sample_graph(model_, compiled.sizes, select, compute,
                         skip_layers.empty() ? SizeLists{} : SizeLists{{"skip_layers", skip_layers}}, streaming);
  compiled.plan = plan_memory(compiled.graph, parameters(compiled.graph));
  return compiled;
}

Denoiser::Memory Denoiser::memory() const {
  Memory memory;
  const auto add = [&](const Compiled& compiled) {
    memory.arena = std::max(memory.arena, compiled.plan.bytes);
    memory.workspace = std::max(memory.workspace, workspace_bytes(device_, compiled.graph, compiled.plan));
    memory.constants += constant_bytes(compiled.graph);
  };
  add(whole_);
  if (skipping_) add(*skipping_);
  return memory;
}

void Denoiser::bind(std::byte* arena, const Weights& weights, const Adapters* adapters) {
  const auto bind_one = [&](Compiled& compiled) {
    Externals externals = weights.bind(compiled.graph);
    if (adapters != nullptr) adapters->bind(compiled.graph, externals, adapters->shown());
    compiled.program = std::make_unique<Program>(device_, compiled.graph, compiled.plan, arena, externals);
  };
  bind_one(whole_);
  if (skipping_) bind_one(*skipping_);
}

// What the model says of x with the conditioning of each of the prompts.
std::vector<Denoiser::Parts> Denoiser::evaluate(Compiled& compiled, const Parts& x, const NoiseLevel& level,
                                                const std::vector<const NamedTensors*>& prompts) {
  Program& program = *compiled.program;
  const auto h = static_cast<float>(like_.height), w = static_cast<float>(like_.width);
  std::vector<InputRow> rows;
  for (const NamedTensors* prompt : prompts)  // an image that was made in this size and not cropped
    rows.push_back({prompt, level, like_.guidance.scale, {h, w, 0, 0, h, w}, images_});
  for (size_t part = 0; part < x.size(); ++part)
    program.set_input(part_inputs[part], stack_rows(std::vector<const HostTensor*>(rows.size(), &x[part])));
  for (const auto& [name, tensor] : inputs_.batch(rows, compiled.sizes))
    if (compiled.graph.inputs.contains(name)) program.set_input(name, tensor);
  program.run();
  std::vector<Parts> said(prompts.size());
  for (size_t part = 0; part < x.size(); ++part) {
    const HostTensor all = converted(program.output(part_outputs[part]), DType::f32);
    for (size_t i = 0; i < said.size(); ++i)
      said[i].push_back(said.size() == 1 ? all : row_of(all, static_cast<int64_t>(i)));
  }
  return said;
}

ModelSaid Denoiser::guided(const HostTensor& joined, const NoiseLevel& level, int64_t step,
                           const SampleRequest& request, TextEncoding& text) {
  const Recipe& recipe = model_.recipe();
  const Guidance& guidance = request.guidance;
  const Parts x = latents_.apart(joined);
  const TensorCache::Entry prompt_entry = text.at(request.wanted(recipe));
  const NamedTensors* prompt = prompt_entry.get();
  const auto ask = [&](Compiled& compiled, const NamedTensors* with) {
    return std::move(evaluate(compiled, x, level, {with})[0]);
  };
  if (!guidance.classifier_free) return latents_.together(ask(whole_, prompt));
  const TensorCache::Entry negative_entry = text.at(request.unwanted(recipe));
  const NamedTensors* negative = negative_entry.get();
  const bool over = noise_gone(recipe, level.sigma, level.time) >= guidance.until;
  Parts with, without;
  if (guidance.batched) {
    std::vector<Parts> both = evaluate(whole_, x, level, {negative, prompt});
    without = std::move(both[0]);
    with = std::move(both[1]);
  } else {
    with = ask(whole_, prompt);
    if (!over) without = ask(whole_, negative);
  }
  if (over) return latents_.together(std::move(with));
  Parts out, skipped;
  if (skipping_ && active(*guidance.skip_layers, step, schedule_.steps())) skipped = ask(*skipping_, prompt);
  for (size_t part = 0; part < x.size(); ++part) {
    HostTensor& guided = out.emplace_back(classifier_free(with[part], without[part], guidance.scale));
    take_back_norm(guided, with[part], guidance, part == 0 ? recipe.latents.multiple : 1);
    if (!skipped.empty()) add_skip_layer(guided, with[part], skipped[part], guidance.skip_layers->scale);
  }
  return {latents_.together(std::move(out)), latents_.together(std::move(without))};
}

HostTensor Denoiser::normal(const SampleRequest& request, Purpose purpose, int64_t step, int64_t draw) const {
  const NoiseSpec& spec = model_.recipe().noise;
  HostTensor noise(Desc{DType::f32, latents_.shape()});
  Random(request.seed, purpose, static_cast<uint64_t>(step), static_cast<uint32_t>(draw))
      .fill_normal(noise.as<float>());
  if (spec.clip > 0) clip_noise(noise.as<float>(), spec.clip);
  if (spec.scale != 1)
    for (float& v : noise.as<float>()) v *= static_cast<float>(spec.scale);
  return noise;
}

SamplerRun Denoiser::run() const {
  return {device_, *sampler_.sampler, model_.recipe().objective, schedule_, latents_.shape()};
}

SamplerState Denoiser::begin(const SampleRequest& request) const {
  return run().begin(normal(request, Purpose::sample_noise, 0, 0));
}

// A step is of the denoiser to which the level belongs that it begins with, all its stages too.
void Denoiser::go_on(SamplerState& state, const SampleRequest& request, TextEncoding& text, NamedTensors images,
                     double above, const std::function<bool()>& cancelled) {
  images_ = std::move(images);
  run().go_on(
      state,
      {.model =
           [&](const HostTensor& x, const SamplingLevel& at, int64_t step) {
             NoiseLevel level{at.alpha, at.sigma, static_cast<float>(at.time)};
             level.end = static_cast<float>(schedule_.level(step + 1).time);
             return guided(x, level, step, request, text);
           },
       .noise = [&](int64_t step, int64_t draw) { return normal(request, Purpose::sampler_noise, step, draw); },
       .proceed = [&](int64_t step,
                      const HostTensor&) { return schedule_.level(step).for_model().sigma > above && !cancelled(); }});
}

HostTensor Denoiser::sample(const SampleRequest& request, TextEncoding& text, NamedTensors images,
                            const std::function<bool()>& cancelled) {
  SamplerState state = begin(request);
  go_on(state, request, text, std::move(images), 0, cancelled);
  return std::move(state.x);
}

}  // namespace lh
