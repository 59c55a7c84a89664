// The denoiser in memory for images of one size and guidance, integrated by a sampler.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "core/random.h"
#include "diffusion/sampler.h"
#include "diffusion/sampler_choice.h"
#include "encode/text_encoding.h"
#include "plugin/model.h"
#include "run/weights.h"
#include "sample/joined_latents.h"
#include "sample/sampling.h"

namespace lh {

class Denoiser {
 public:
  // All images will have the size, steps and guidance of `like`; lengths: of the longest prompt (TextEncoding).
  // streaming: as the weights are kept that it is bound to.
  Denoiser(Device& device, const Model& model, const SelectAdapter& select, DType compute, const SamplerChoice& sampler,
           const SampleRequest& like, const Sizes& lengths, const Streaming& streaming = {});
  // The graph that uses every weight and adapter.
  const Graph& graph() const { return whole_.graph; }
  // What its programs take of the device, one at a time in one arena.
  struct Memory {
    int64_t arena = 0, workspace = 0, constants = 0;
  };
  Memory memory() const;
  void bind(std::byte* arena, const Weights& weights, const Adapters* adapters);
  SamplerState begin(const SampleRequest& request) const;
  // Goes on while the noise is above `above`, unless it is cancelled. The request's prompts must be prepared in `text`.
  // images: of the request, by input (ImageInputs::make); empty for models that are given none.
  void go_on(SamplerState& state, const SampleRequest& request, TextEncoding& text, NamedTensors images, double above,
             const std::function<bool()>& cancelled);
  bool done(const SamplerState& state) const { return state.step == schedule_.steps(); }
  // All of it: latents in model space, float32, as JoinedLatents has them.
  HostTensor sample(const SampleRequest& request, TextEncoding& text, NamedTensors images,
                    const std::function<bool()>& cancelled);

 private:
  struct Compiled {
    Sizes sizes;
    Graph graph{DType::f32};
    Plan plan;
    std::unique_ptr<Program> program;
  };
  Compiled compile(const SelectAdapter& select, DType compute, int64_t batch, const Sizes& lengths,
                   const std::vector<int64_t>& skip_layers, const Streaming& streaming) const;
  using Parts = std::vector<HostTensor>;  // of JoinedLatents
  std::vector<Parts> evaluate(Compiled& compiled, const Parts& x, const NoiseLevel& level,
                              const std::vector<const NamedTensors*>& prompts);
  ModelSaid guided(const HostTensor& x, const NoiseLevel& level, int64_t step, const SampleRequest& request,
                   TextEncoding& text);

  SamplerRun run() const;
  HostTensor normal(const SampleRequest& request, Purpose purpose, int64_t step, int64_t draw) const;

  Device& device_;
  const Model& model_;
  SamplerChoice sampler_;
  SampleRequest like_;
  SamplingSchedule schedule_;
  JoinedLatents latents_;
  DenoiserInputs inputs_;
  NamedTensors images_;  // of the request that is worked on, by input
  Compiled whole_;
  std::optional<Compiled> skipping_;  // without the blocks of skip-layer guidance
};

}  // namespace lh
