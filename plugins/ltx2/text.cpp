// The conditioner of LTX-2, and of its sound by a connector of its own:
//
//   s_l  = states of Gemma behind its embedding and each layer, the last behind the final norm          [B, L, d]
//   2.0: n_l = 8 (s_l - mean) / (max - min), of all numbers of a text's tokens; later: n_l = s_l / rms, by token
//   text = connector(aggregate_embed(n)), the layer the fastest of d (layers + 1) columns; later: of sqrt(D / d) n
//
// Prompts are padded behind their tokens. The vendor's tokenizer pads in front, and its connector then brings the
// tokens forward; of Gemma's positions nothing counts but their difference, so that this is the same.
#include "text.h"

#include <cmath>

#include "attention.h"
#include "connector.h"
#include "denoiser.h"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"

namespace ltx2 {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Value;
using lora_host::Weights;

namespace {

const std::string factor = "model.layers.0.layer_scalar";  // Gemma 4 has one of each layer

// What makes the rows of one stream behind Gemma.
struct Side {
  std::string projection;  // in a file of its own, in the checkpoint, or beside Gemma 4
  std::string connector;
  int64_t head;
};

// What reads the prompt: Gemma 3 12B, which scales scores by query_pre_attn_scalar^-1/2, 256 as its heads are wide, or
// Gemma 4 12B, whose norms of queries have their scale in them.
struct Gemma {
  std::string name, prefix;
  nn::LlmFacts facts;
};
Gemma gemma_of(const Weights& weights) {
  const bool fourth = reads_gemma4(weights);
  const std::string name = fourth ? "gemma4" : "gemma3", prefix = name + ":";
  const auto embedding = weights.find(prefix + "model.embed_tokens.weight");
  const double width = embedding && embedding->size() == 2 ? static_cast<double>((*embedding)[1]) : 1;
  nn::LlmFacts facts{.head_dim = 256,
                     .eps = eps,
                     .rope_theta = 1e6,
                     .activation = "tanh",
                     .embedding_scale = std::sqrt(width),
                     .window = 1024,  // as many as a prompt's tokens at most
                     .full_every = 6,
                     .window_theta = 1e4};
  if (fourth) {
    facts.attention_scale = 1;
    facts.full_head_dim = 512;
    facts.rope_share = 0.25;
    facts.keys_are_values = facts.value_norm = true;
  } else {
    facts.norm_offset = 1;
    facts.rope_scaling.factor = 8;
  }
  return {name, prefix, facts};
}

std::string projection_of(const Weights& weights, const std::string& module, const std::string& beside_gemma4) {
  const std::string own = "text_projection:" + module;
  return weights.has(own + ".weight") ? own : "gemma4:text_embedding_projection." + beside_gemma4;
}

Side clip_side(const Weights& weights) {
  return {projection_of(weights, "aggregate_embed", "video_aggregate_embed"), "connector:", head_dim};
}

// That of LTX-2 has no projection of its own and heads as wide as the clip's.
Side sound_side(const Weights& weights) {
  const std::string connector = "audio_connector:audio_embeddings_connector.", module = "audio_aggregate_embed";
  if (!projects_by_token(weights)) return {clip_side(weights).projection, connector, head_dim};
  return {projection_of(weights, module, module), connector, sound_head_dim};
}

// x [B, L, d], mask f32 [B, L, 1] -> f32, 0 where nothing is
Value normalised_by_text(Graph& g, Value x, Value mask) {
  constexpr double out_of_reach = 3e38, least = 1e-6;
  x = g.cast(x, LH_F32);
  const auto largest = [&](Value of) {  // of the tokens' numbers
    Value else_low = g.affine(g.affine(mask, -1, 1), -out_of_reach);
    return g.amax(g.add(g.mul(of, mask), else_low), {1, 2});
  };
  Value count = g.affine(g.sum(mask, {1, 2}), static_cast<double>(g.shape(x)[2]), least);
  Value mean = g.div(g.sum(g.mul(x, mask), {1, 2}), count);
  Value range = g.affine(g.add(largest(x), largest(g.affine(x, -1))), 1, least);
  return g.mul(g.div(g.affine(g.sub(x, mean), 8), range), mask);
}

// States [B, L, d] of each layer -> [B, L, d layers]
Value side_by_side(Graph& g, const std::vector<Value>& states) {
  const Dims d = g.shape(states[0]);
  std::vector<Value> columns;
  for (Value state : states) columns.push_back(g.reshape(state, {d[0], d[1], d[2], 1}));
  return g.reshape(g.concat(columns, -1), {d[0], d[1], d[2] * static_cast<int64_t>(states.size())});
}

Value projected(Graph& g, std::vector<Value> states, Value mask, const std::string& projection) {
  const bool tokens = projects_by_token(g.weights());
  const int64_t width = g.shape(states[0])[2], made = g.weights().extent(projection + ".weight", 0);
  const double scale = tokens ? std::sqrt(static_cast<double>(made) / static_cast<double>(width)) : 1;
  for (Value& state : states)
    state = tokens ? g.mul(g.affine(g.rms_norm(state, eps), scale), g.cast(mask, LH_FLOAT))
                   : g.cast(normalised_by_text(g, state, mask), LH_FLOAT);
  return g.linear(side_by_side(g, states), projection);
}

// The width of a row, 0 where neither projection nor connector is there.
int64_t check_side(const Weights& w, const Side& side, const Gemma& gemma, int64_t d) {
  int64_t width = 0;
  if (w.has(side.projection + ".weight")) {
    const Dims shape = w.require(side.projection + ".weight", {-1, -1});
    width = shape[0];
    const int64_t states = nn::Llm::layers(w, gemma.prefix) + 1;
    if (d > 0)
      nn::require_width(side.projection + ".weight", shape[1],
                        std::to_string(states) + " states of " + gemma.name + " have", d * states);
  }
  return w.first_with_prefix(side.connector).empty() ? width : check_connector(w, side.connector, side.head, width);
}

}  // namespace

bool reads_gemma4(const Weights& w) {
  return w.has("patchify_proj.weight") ? without_biases(w) : w.has("gemma4:" + factor);
}

bool projects_by_token(const Weights& w) { return w.has(clip_side(w).projection + ".bias"); }

TextWidths check_text(const Weights& w, bool sound) {
  const Gemma gemma = gemma_of(w);
  if (w.has("gemma3:" + factor) && gemma.name == "gemma3")
    throw Failure(LH_E_MODEL, "gemma3:" + factor + ": this is Gemma 4, which reads the prompts of LTX-2.5 alone");
  int64_t d = 0;
  if (!w.first_with_prefix(gemma.prefix).empty()) {
    d = nn::check_llm(w, gemma.prefix, gemma.facts);
    if (gemma.name == "gemma4") w.require(gemma.prefix + factor, {1});
  }
  return {check_side(w, clip_side(w), gemma, d), sound ? check_side(w, sound_side(w), gemma, d) : 0};
}

void build_conditioner(Graph& g, const lora_host::Sizes& sizes, bool sound) {
  const Weights w = g.weights();
  const Gemma gemma = gemma_of(w);
  const Side clip = clip_side(w), audio = sound_side(w);
  w.require_component(gemma.name, (gemma.name + "_path").c_str(), "conditioner");
  if (!w.has(clip.projection + ".weight"))
    w.require_component("text_projection", "text_projection_path", "conditioner");
  w.require_component("connector", "connector_path", "conditioner");
  if (sound) {
    w.require_component("audio_connector", "connector_path", "conditioner");
    if (!w.has(audio.projection + ".weight"))
      throw Failure(LH_E_MODEL,
                    "sound is true, but the projection of Gemma's states has nothing for it: expected "
                    "audio_aggregate_embed.weight beside the clip's, found none; give a file that has both as "
                    "model.text_projection_path");
  }
  const int64_t batch = sizes["batch"], length = sizes[gemma.name + ".length"];
  Value ids = g.input(gemma.name + ".input_ids", {batch, length}, LH_I32);
  Value mask = g.input(gemma.name + ".attention_mask", {batch, length}, LH_I32);
  nn::Llm llm(g, gemma.prefix, gemma.facts, ids, mask);
  std::vector<Value> states = llm.states(nn::Llm::layers(w, gemma.prefix));
  states.back() = llm.final_norm(states.back());
  Value there = g.reshape(g.cast(mask, LH_F32), {batch, length, 1});
  Value x = projected(g, states, there, clip.projection);
  g.output("text", connected(g, clip.connector, clip.head, x, there));
  if (!sound) return;
  if (audio.projection != clip.projection) x = projected(g, states, there, audio.projection);
  g.output("sound_text", connected(g, audio.connector, audio.head, x, there));
}

}  // namespace ltx2
