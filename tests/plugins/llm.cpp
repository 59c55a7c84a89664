// A text encoder alone, made of nn/llm.hpp: `variant` says with which facts. Every hidden state is an output.
#include "nn/llm.hpp"

namespace {

using namespace lora_host;

constexpr const char* checkpoint = R"(
components:
  denoiser: {config: name_or_path, prefixes: [""], marker: none, folder: transformer, diffusers: []}
  llm:
    config: llm_path
    help: The encoder.
    prefixes: [""]
    folder: text_encoder
    marker: model.layers.0.self_attn.q_proj.weight
    diffusers: []
settings:
  variant: {one_of: [llama, gemma, gemma4, yarn], help: Which facts.}
)";

constexpr const char* recipe_text = R"(
family: llm
objective: flow
latents: {channels: 16, downscale: 8, multiple: 2}
inputs: {}
timestep: {type: sigmoid, shift: 1.0}
sampling: {sampler: flow_euler, steps: 4, schedule: {kind: flow, dynamic: false, shift: 1.0}}
lora: {targets: []}
)";

// What tests/llm_test.cpp computes by itself.
constexpr nn::LlmFacts llama = {.head_dim = 8, .eps = 1e-5, .rope_theta = 1e4, .rope_scaling = {8, 1, 4, 64}};
constexpr nn::LlmFacts yarn = {.head_dim = 8, .eps = 1e-5, .rope_theta = 1e4, .rope_scaling = {8, 1, 4, 64, true}};
constexpr nn::LlmFacts gemma = {.head_dim = 8,
                                .rope_theta = 1e5,
                                .activation = "tanh",
                                .attention_scale = 0.2,
                                .attention_soft_cap = 1.5,
                                .norm_offset = 1,
                                .embedding_scale = 3.5,
                                .window = 3,
                                .full_every = 2,
                                .window_theta = 1e3,
                                .rope_scaling = {.factor = 4}};

constexpr nn::LlmFacts gemma4 = {.head_dim = 8,
                                 .rope_theta = 1e5,
                                 .activation = "tanh",
                                 .attention_scale = 0.5,
                                 .embedding_scale = 3.5,
                                 .window = 3,
                                 .full_every = 2,
                                 .window_theta = 1e3,
                                 .full_head_dim = 16,
                                 .rope_share = 0.25,
                                 .keys_are_values = true,
                                 .value_norm = true};

const nn::LlmFacts& facts_of(const std::string& variant) {
  return variant == "gemma" ? gemma : variant == "gemma4" ? gemma4 : variant == "yarn" ? yarn : llama;
}

class Encoder : public Model {
 public:
  explicit Encoder(const Weights& weights) : facts_(facts_of(weights.setting("variant").value_or("llama"))) {
    nn::check_llm(weights, "llm:", facts_);
  }
  static int32_t probe(const Weights&) { return 0; }
  const char* recipe() const override { return recipe_text; }
  const char* role(uint32_t index) const override { return index == 0 ? "conditioner" : nullptr; }
  void build(Graph& g, std::string_view, const Sizes& sizes) const override {
    int64_t batch = sizes["batch"], length = sizes["llm.length"];
    Value ids = g.input("llm.input_ids", {batch, length}, LH_I32);
    nn::Llm llm(g, "llm:", facts_, ids, g.input("llm.attention_mask", {batch, length}, LH_I32));
    std::vector<Value> states = llm.states(nn::Llm::layers(g.weights(), "llm:"));
    for (size_t i = 0; i < states.size(); ++i) g.output("states." + std::to_string(i), states[i]);
    g.output("last", llm.final_norm(states.back()));
  }

 private:
  const nn::LlmFacts facts_;
};

constexpr lh_model llm_model = model<Encoder>("test_llm", checkpoint);

}  // namespace

LORA_HOST_PLUGIN("test_llm", "0", "MIT", {LH_MODEL_FACTORY, &llm_model})
