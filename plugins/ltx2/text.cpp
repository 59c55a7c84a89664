// The conditioner of LTX-2:
//
//   s_l  = states of Gemma behind its embedding and each layer, the last behind the final norm          [B, L, d]
//   2.0: n_l = 8 (s_l - mean) / (max - min), of all numbers of a text's tokens; later: n_l = s_l / rms, by token
//   x    = aggregate_embed(n), the layer the fastest of d (layers + 1) columns; later: of sqrt(D / d) n
//   x    = registers, one after the other and again, where there are no tokens; and then in each block of the connector
//   x   += attn1(norm(x));  x += ff(norm(x));  text = norm(x)
//
// Prompts are padded behind their tokens. The vendor's tokenizer pads in front, and its connector then brings the
// tokens forward; of Gemma's positions nothing counts but their difference, so that this is the same. Norms of the
// connector are RMS, without weights; all its rows see each other, at positions that are shares of 4096.
#include "text.h"

#include <cmath>

#include "attention.h"
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

constexpr float connector_positions = 4096;
const std::string factor = "model.layers.0.layer_scalar";  // Gemma 4 has one of each layer
const std::string connector = "connector:";

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

// In a file of its own, in the checkpoint, or beside Gemma 4.
std::string projection_of(const Weights& weights) {
  const std::string own = "text_projection:aggregate_embed";
  return weights.has(own + ".weight") ? own : "gemma4:text_embedding_projection.video_aggregate_embed";
}

// Its normalised states are those of LTX-2.3 and LTX-2.5.
bool by_token(const Weights& weights) { return weights.has(projection_of(weights) + ".bias"); }

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

Value projected(Graph& g, std::vector<Value> states, Value mask) {
  const std::string projection = projection_of(g.weights());
  const bool tokens = by_token(g.weights());
  const int64_t width = g.shape(states[0])[2], made = g.weights().extent(projection + ".weight", 0);
  const double scale = tokens ? std::sqrt(static_cast<double>(made) / static_cast<double>(width)) : 1;
  for (Value& state : states)
    state = tokens ? g.mul(g.affine(g.rms_norm(state, eps), scale), g.cast(mask, LH_FLOAT))
                   : g.cast(normalised_by_text(g, state, mask), LH_FLOAT);
  return g.linear(side_by_side(g, states), projection);
}

// x [B, L, D] with rows of its own where mask f32 [B, L, 1] has none.
Value with_registers(Graph& g, Value x, Value mask) {
  Value registers = g.param(connector + "learnable_registers");
  const Dims d = g.shape(x), r = g.shape(registers);
  if (d[1] % r[0] != 0)
    throw Failure(LH_E_SETTING, "model.max_sequence_length: expected a multiple of " + std::to_string(r[0]) +
                                    " (rows of learnable_registers), found " + std::to_string(d[1]));
  Value again = g.reshape(g.expand(g.reshape(registers, {1, r[0], r[1]}), {d[1] / r[0], r[0], r[1]}), {1, d[1], r[1]});
  return g.where(g.cast(mask, LH_I32), x, again);
}

Value connected(Graph& g, Value x) {
  const Dims d = g.shape(x);
  Shares shares;
  for (int64_t i = 0; i < d[1]; ++i) shares.push_back(static_cast<float>(i) / connector_positions);
  const nn::RopeTables rope = rope_tables(g, {shares}, d[2]);
  const std::string blocks = connector + "transformer_1d_blocks.";
  for (int64_t i = 0; i < g.weights().count(blocks, ".attn1.to_q.weight"); ++i) {
    const std::string block = blocks + std::to_string(i);
    auto scope = g.scope(block, LH_SCOPE_CHECKPOINT);
    Value y = g.rms_norm(x, eps);
    x = g.add(x, attention(g, block + ".attn1", y, y, rope));
    x = g.add(x, feed_forward(g, block + ".ff", g.rms_norm(x, eps)));
  }
  return g.rms_norm(x, eps);
}

}  // namespace

bool reads_gemma4(const Weights& w) {
  return w.has("patchify_proj.weight") ? without_biases(w) : w.has("gemma4:" + factor);
}

int64_t check_text(const Weights& w) {
  const Gemma gemma = gemma_of(w);
  const int64_t states = nn::Llm::layers(w, gemma.prefix) + 1;
  if (w.has("gemma3:" + factor) && gemma.name == "gemma3")
    throw Failure(LH_E_MODEL, "gemma3:" + factor + ": this is Gemma 4, which reads the prompts of LTX-2.5 alone");
  int64_t d = 0;
  if (!w.first_with_prefix(gemma.prefix).empty()) {
    d = nn::check_llm(w, gemma.prefix, gemma.facts);
    if (gemma.name == "gemma4") w.require(gemma.prefix + factor, {1});
  }
  int64_t width = 0;
  if (const std::string projection = projection_of(w); w.has(projection + ".weight")) {
    const Dims shape = w.require(projection + ".weight", {-1, -1});
    width = shape[0];
    if (d > 0)
      nn::require_width(projection + ".weight", shape[1], std::to_string(states) + " states of " + gemma.name + " have",
                        d * states);
  }
  if (w.first_with_prefix(connector).empty()) return width;
  const int64_t h = w.require(connector + "learnable_registers", {-1, width > 0 ? width : -1})[1];
  if (h < 1 || h % head_dim != 0)
    throw Failure(LH_E_MODEL, connector +
                                  "learnable_registers: expected a multiple of 128 columns (heads of 128), found " +
                                  std::to_string(h));
  const std::string blocks = connector + "transformer_1d_blocks.";
  const int64_t count = w.count(blocks, ".attn1.to_q.weight");
  for (int64_t i = 0; i < std::max<int64_t>(count, 1); ++i) {
    require_attention(w, blocks + std::to_string(i) + ".attn1", h, h);
    require_feed_forward(w, blocks + std::to_string(i) + ".ff", h);
  }
  return h;
}

void build_conditioner(Graph& g, const lora_host::Sizes& sizes) {
  const Weights w = g.weights();
  const Gemma gemma = gemma_of(w);
  w.require_component(gemma.name, (gemma.name + "_path").c_str(), "conditioner");
  if (!w.has(projection_of(w) + ".weight"))
    w.require_component("text_projection", "text_projection_path", "conditioner");
  w.require_component("connector", "connector_path", "conditioner");
  const int64_t batch = sizes["batch"], length = sizes[gemma.name + ".length"];
  Value ids = g.input(gemma.name + ".input_ids", {batch, length}, LH_I32);
  Value mask = g.input(gemma.name + ".attention_mask", {batch, length}, LH_I32);
  nn::Llm llm(g, gemma.prefix, gemma.facts, ids, mask);
  std::vector<Value> states = llm.states(nn::Llm::layers(w, gemma.prefix));
  states.back() = llm.final_norm(states.back());
  Value there = g.reshape(g.cast(mask, LH_F32), {batch, length, 1});
  g.output("text", connected(g, with_registers(g, projected(g, std::move(states), there), there)));
}

}  // namespace ltx2
