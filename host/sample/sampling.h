// Pictures from prompts: the denoiser integrated by a sampler plugin, then the VAE decoder.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/image.h"
#include "plugin/model.h"
#include "run/weights.h"
#include "sample/vae.h"
#include "train/adapters.h"
#include "train/compile.h"
#include "train/text_encoding.h"

namespace lh {

struct SampleRequest {
  std::string prompt, negative;
  int64_t width = 512, height = 512, steps = 20;
  double guidance = 1;
  uint64_t seed = 42;
};

// The denoiser in memory for one picture size.
class Denoiser {
 public:
  Denoiser(Device& device, const Model& model, const SelectAdapter& select, DType compute, int64_t width,
           int64_t height, int64_t text_length);
  const Graph& graph() const { return graph_; }
  int64_t arena_bytes() const { return plan_.bytes; }
  void bind(std::byte* arena, const Weights& weights, const Adapters* adapters);
  // Latents in model space, float32 [1, h, w, C]. Both prompts must be prepared in `text`.
  HostTensor sample(const SampleRequest& request, const std::string& sampler, const Registry& registry,
                    TextEncoding& text, const std::function<bool()>& cancelled);

 private:
  HostTensor evaluate(const HostTensor& x, double sigma, const Conditioning& conditioning, double guidance);
  Device& device_;
  const Model& model_;
  Graph graph_;
  Plan plan_;
  std::unique_ptr<Program> program_;
};

// The VAE decoder for one picture size, in tiles where the plan says so.
class Decoder {
 public:
  Decoder(const Vae& vae, VaePlan plan) : vae_(vae), plan_(std::move(plan)) {}
  const VaePlan& plan() const { return plan_; }
  // Loads the weights; the arena may be shared with programs that do not run at the same time.
  void bind(std::byte* arena);
  Image decode(const HostTensor& latents);

 private:
  Vae vae_;
  VaePlan plan_;
  std::optional<Weights> weights_;
  std::unique_ptr<Program> program_;
};

// The sampler's and the recipe's defaults put in where the user said nothing; sizes are checked against the model's
// step.
SampleRequest complete_request(const SampleConfig& config, const Recipe& recipe, const std::string& prompt,
                               uint64_t seed);
// The sampler `id`, the model's own where it is empty; throws where it is not known or not for this kind of model.
Offered<lh_sampler> find_sampler(const Registry& registry, const Recipe& recipe, const std::string& id);
// Prompts that a set of requests needs encoded.
std::vector<std::string> prompts_of(const std::vector<SampleRequest>& requests, const Recipe& recipe);

}  // namespace lh
