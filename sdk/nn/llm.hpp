// A decoder-only language model (Llama, Mistral, Qwen2.5, Qwen3, Gemma) that reads a prompt: ids i32 [B, L] and their
// mask -> hidden states [B, L, d].
//
//   x = embedding;  x += o(attention(q, k, v of norm(x)));  x += down(act(gate y) * up y), y = norm(x)
// Attention is causal, with rotary positions in halves (i, i + D/2). Real tokens stand in front and pads behind them: a
// pad sees the tokens before it and no pad; in front of them (pads_first) it sees nothing. Widths, depth, heads,
// biases, norms of q and k, norms after attention and MLP (Gemma), and a factor of all that a layer gives (Gemma 4)
// follow from the weights, which have their Hugging Face names; LlmFacts are what they do not say.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers.hpp"
#include "nn/rope.hpp"

namespace lora_host::nn {

// Longer contexts than those of the first training: angles are divided by `factor`; with `low_frequency` those of long
// waves only: that turn less often than so within the length of that training, while those that turn more often than
// `high_frequency` stay. Between them goes a line, in turns (Llama 3) or in places among the frequencies (YaRN).
struct RopeScaling {
  double factor = 1, low_frequency = 0, high_frequency = 0, original_length = 0;
  bool by_place = false;
};

struct LlmFacts {
  int64_t head_dim = 128;
  double eps = 1e-6;
  double rope_theta = 1e6;
  const char* activation = "silu";  // or a mode of gelu/1
  double attention_scale = 0;       // 0: 1 / sqrt(head_dim)
  double attention_soft_cap = 0;    // scores s become cap tanh(s / cap) (Gemma 2: 50)
  double norm_offset = 0;           // norms multiply by offset + weight (Gemma: 1)
  double embedding_scale = 1;       // Gemma: sqrt(d)
  // A token of a layer with a window sees that many, itself among them. Each `full_every`th layer has none (0: no
  // layer).
  int64_t window = 0, full_every = 0;
  double window_theta = 0;        // rope_theta of layers with a window; 0: the same
  RopeScaling rope_scaling = {};  // of layers without a window
  // Layers without a window may have heads of their own (Gemma 4); 0: the same. Of their frequencies the fastest turn,
  // so large a share of all; and their values are what k_proj gives, before its norm, so that there is no v_proj.
  int64_t full_head_dim = 0;
  double rope_share = 1;
  bool keys_are_values = false;
  bool value_norm = false;    // values go through an RMS norm without weights
  bool pads_first = false;    // pads stand in front, and count as positions
  int64_t pad_position = -1;  // where every pad behind the tokens stands, in layers without a window; -1: they count on
  // Of models that also see: a position has three axes, and so many of the frequencies turn by each of them: one after
  // the other, or (Qwen3-VL) in turns as long as the second and the third have any left, the first has all others.
  std::array<int64_t, 3> rope_sections = {};
  bool sections_in_turns = false;

  bool windowed(int64_t layer) const { return window > 0 && (full_every == 0 || (layer + 1) % full_every != 0); }
  int64_t head_dim_of(int64_t layer) const { return windowed(layer) || full_head_dim == 0 ? head_dim : full_head_dim; }
  // The axis by which each frequency turns.
  std::vector<size_t> rope_axes() const {
    std::vector<size_t> axes;
    for (size_t axis = 0; axis < rope_sections.size(); ++axis)
      axes.insert(axes.end(), static_cast<size_t>(rope_sections[axis]), axis);
    if (sections_in_turns)
      for (size_t k = 0; k < axes.size(); ++k) axes[k] = static_cast<int64_t>(k) < 3 * rope_sections[k % 3] ? k % 3 : 0;
    return axes;
  }
  bool has_values(int64_t layer) const { return windowed(layer) || !keys_are_values; }
};

// Of each token on three axes.
using AxisPositions = std::vector<std::array<int64_t, 3>>;

class Llm {
 public:
  // The weights are those of `prefix`, e.g. "qwen3:". mask i32 [B, L]: 1 = there. positions: of layers without a
  // window, the same in all texts; where there are none, tokens are counted.
  Llm(Graph& g, std::string prefix, const LlmFacts& facts, Value ids, Value mask, const AxisPositions& positions = {})
      : g_(g), root_(std::move(prefix) + "model."), facts_(facts), ids_(ids), length_(g.shape(ids)[1]) {
    if (facts.pads_first)
      key_mask_ = mask;
    else
      key_lengths_ = g.cast(mask_lengths(g, mask), LH_I32);
    std::vector<double> frequencies = rope_frequencies(full_heads(), facts.rope_theta);
    const double turning = facts.rope_share * static_cast<double>(frequencies.size());
    for (size_t k = 0; k < frequencies.size(); ++k)
      frequencies[k] = static_cast<double>(k) < turning ? scaled(static_cast<double>(k), frequencies[k]) : 0;
    plain_ = windowed_ = {rope_tables(g, length_, frequencies), {}};
    if (!positions.empty()) plain_.rope = rope_tables(g, positions, facts.rope_axes(), frequencies);
    if (facts.pad_position >= 0) plain_.rope = with_pads(plain_.rope, mask, frequencies);
    if (facts.window_theta > 0)
      windowed_.rope = rope_tables(g, length_, rope_frequencies(facts.head_dim, facts.window_theta));
    if (facts.window > 0 && facts.window < length_) windowed_.bias = window_bias();
  }

  static int64_t layers(const Weights& weights, const std::string& prefix) {
    return weights.count(prefix + "model.layers.", ".self_attn.q_proj.weight");
  }

  // Rows [1, n, d] take the place of the embeddings of n tokens from `at` on, in every text; those of `deep` are added
  // to what the first, second, ... layer gives for these tokens.
  void show(int64_t at, Value rows, std::vector<Value> deep = {}) { shown_.push_back({at, rows, std::move(deep)}); }

  // After 0, 1, ... `depth` layers, without the final norm, and as a layer gives them: without what is added to them.
  std::vector<Value> states(int64_t depth) {
    Value x = g_.embedding(ids_, root_ + "embed_tokens");
    if (facts_.embedding_scale != 1) x = g_.affine(x, facts_.embedding_scale);
    for (const Shown& shown : shown_) x = with_rows(x, shown.at, shown.rows);
    std::vector<Value> all = {x};
    for (int64_t i = 0; i < depth; ++i) {
      all.push_back(x = layer(i, x));
      for (const Shown& shown : shown_)
        if (static_cast<size_t>(i) < shown.deep.size()) x = with_added(x, shown.at, shown.deep[static_cast<size_t>(i)]);
    }
    return all;
  }
  Value final_norm(Value x) { return norm(x, root_ + "norm"); }

 private:
  struct Shown {
    int64_t at;
    Value rows;
    std::vector<Value> deep;
  };

  Value with_added(Value x, int64_t at, Value rows) {
    return with_rows(x, at, g_.add(g_.slice(x, 1, at, g_.shape(rows)[1]), rows));
  }
  Value with_rows(Value x, int64_t at, Value rows) {
    const Dims d = g_.shape(x);
    const int64_t end = at + g_.shape(rows)[1];
    if (end > d[1])
      throw Failure(LH_E_SETTING, "rows " + std::to_string(at) + " to " + std::to_string(end) +
                                      " are shown, but a text has " + std::to_string(d[1]) + " tokens");
    std::vector<Value> pieces;
    if (at > 0) pieces.push_back(g_.slice(x, 1, 0, at));
    pieces.push_back(g_.expand(rows, {d[0], end - at, d[2]}));
    if (end < d[1]) pieces.push_back(g_.slice(x, 1, end, d[1] - end));
    return g_.concat(pieces, 1);
  }

  Value norm(Value x, const std::string& module) {
    if (facts_.norm_offset == 0) return g_.rms_norm(x, module, facts_.eps);
    Value weight = g_.affine(g_.cast(g_.param(module + ".weight"), LH_F32), 1, facts_.norm_offset);
    return g_.rms_norm(x, facts_.eps, weight);
  }

  Value layer(int64_t index, Value x) {
    std::string name = root_ + "layers." + std::to_string(index);
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    bool sandwich = g_.weights().has(name + ".pre_feedforward_layernorm.weight");
    Value y = attention(index, norm(x, name + ".input_layernorm"), name + ".self_attn");
    if (sandwich) y = norm(y, name + ".post_attention_layernorm");
    x = g_.add(x, y);
    y = norm(x, name + (sandwich ? ".pre_feedforward_layernorm" : ".post_attention_layernorm"));
    y = g_.linear(g_.mul(activation(g_.linear(y, name + ".mlp.gate_proj")), g_.linear(y, name + ".mlp.up_proj")),
                  name + ".mlp.down_proj");
    if (sandwich) y = norm(y, name + ".post_feedforward_layernorm");
    x = g_.add(x, y);
    const std::string factor = name + ".layer_scalar";
    return g_.weights().has(factor) ? g_.mul(x, g_.param(factor)) : x;
  }

  Value activation(Value x) {
    return std::string(facts_.activation) == "silu" ? g_.silu(x) : g_.gelu(x, facts_.activation);
  }

  // What a kind of layer attends by.
  struct Reach {
    RopeTables rope;
    Value bias;
  };

  Value attention(int64_t index, Value x, const std::string& module) {
    const Reach& reach = facts_.windowed(index) ? windowed_ : plain_;
    const int64_t width = facts_.head_dim_of(index);
    Value q = head_norm(split_heads(g_, g_.linear(x, module + ".q_proj"), width), module + ".q_norm");
    Value keys = split_heads(g_, g_.linear(x, module + ".k_proj"), width);
    Value k = head_norm(keys, module + ".k_norm");
    Value v = facts_.has_values(index) ? split_heads(g_, g_.linear(x, module + ".v_proj"), width) : keys;
    if (facts_.value_norm) v = g_.rms_norm(v, facts_.eps);
    q = g_.rope(q, reach.rope.cos, reach.rope.sin, false);
    k = g_.rope(k, reach.rope.cos, reach.rope.sin, false);
    double scale = facts_.attention_scale > 0 ? facts_.attention_scale : 1 / std::sqrt(static_cast<double>(width));
    Value y = g_.attention(q, k, v, scale, reach.bias, key_lengths_, key_mask_, true, facts_.attention_soft_cap);
    return g_.linear(merge_heads(g_, y), module + ".o_proj");
  }

  Value head_norm(Value x, const std::string& module) {
    return g_.weights().has(module + ".weight") ? norm(x, module) : x;
  }

  int64_t full_heads() const { return facts_.full_head_dim > 0 ? facts_.full_head_dim : facts_.head_dim; }

  double scaled(double place, double frequency) const {
    const RopeScaling& s = facts_.rope_scaling;
    if (s.low_frequency == 0) return frequency / s.factor;
    double kept;  // 1: stays as it is
    if (s.by_place) {
      const double fast = std::floor(place_of(s.high_frequency)), slow = std::ceil(place_of(s.low_frequency));
      kept = (slow - place) / (slow - fast);
    } else {
      const double turns = s.original_length * frequency / (2 * std::numbers::pi);
      kept = (turns - s.low_frequency) / (s.high_frequency - s.low_frequency);
    }
    kept = std::min(1.0, std::max(0.0, kept));
    return frequency * (kept + (1 - kept) / s.factor);
  }
  // Where among the frequencies one would stand that turns so often within the length of the first training.
  double place_of(double turns) const {
    const double wave = facts_.rope_scaling.original_length / (turns * 2 * std::numbers::pi);
    return static_cast<double>(full_heads()) * std::log(wave) / (2 * std::log(facts_.rope_theta));
  }

  // [B, L, D/2]: the rows of tokens, and for pads that of `pad_position`.
  RopeTables with_pads(const RopeTables& rope, Value mask, const std::vector<double>& frequencies) {
    RopeAngles angles;
    angles.add(facts_.pad_position, frequencies);
    const auto half = static_cast<int64_t>(frequencies.size());
    const RopeTables pad = angles.tables(g_, {1, 1, half});
    Value there = g_.reshape(g_.cast(mask, LH_F32), {g_.shape(mask)[0], length_, 1});
    const auto choose = [&](Value token, Value other) {
      return g_.add(g_.mul(g_.reshape(token, {1, length_, half}), there), g_.mul(other, g_.affine(there, -1, 1)));
    };
    return {choose(rope.cos, pad.cos), choose(rope.sin, pad.sin)};
  }

  // [1, 1, L, L]: keys before the window are out of reach.
  Value window_bias() {
    std::vector<float> bias;
    for (int64_t i = 0; i < length_; ++i)
      for (int64_t j = 0; j < length_; ++j) bias.push_back(i - j < facts_.window ? 0.0f : -1e30f);
    return g_.constant({1, 1, length_, length_}, bias);
  }

  Graph& g_;
  std::string root_;  // "qwen3:model."
  LlmFacts facts_;
  Value ids_;
  int64_t length_;
  Value key_lengths_, key_mask_;  // real tokens of each sample: how many, or which
  std::vector<Shown> shown_;
  Reach plain_, windowed_;
};

// A prompt within a template as an encoder's language model reads it: inputs `encoder`.input_ids and
// `encoder`.attention_mask, i32 [B, L]. The template's front is read and then left out (`drop` of a tokenizer): `count`
// rows from `first` on are the text.
struct TemplatedPrompt {
  Value ids, mask;
  int64_t first, count;
  Value kept(Graph& g, Value x) const { return g.slice(x, 1, first, count); }  // [B, L, ...] -> [B, count, ...]
  // Outputs text [B, count, d], whose pads are zero, and text_mask, of states that were kept.
  void output_kept(Graph& g, Value states) const {
    Value seen = kept(g, mask);
    g.output("text", masked_rows(g, states, seen));
    g.output("text_mask", seen);
  }
  // The same of the states of all rows, [B, L, d].
  void output(Graph& g, Value states) const { output_kept(g, kept(g, states)); }
};

// Throws where the front is all that there is room for.
inline TemplatedPrompt templated_prompt(Graph& g, const Sizes& sizes, const std::string& encoder) {
  const int64_t batch = sizes["batch"], length = sizes[encoder + ".length"], drop = sizes[encoder + ".drop"];
  if (length <= drop)
    throw Failure(LH_E_SETTING, "model.max_sequence_length: the template's first " + std::to_string(drop) +
                                    " tokens count and are left out, so it must be larger, found " +
                                    std::to_string(length));
  Value ids = g.input(encoder + ".input_ids", {batch, length}, LH_I32);
  return {ids, g.input(encoder + ".attention_mask", {batch, length}, LH_I32), drop, length - drop};
}

// Throws when a linear of a layer called `name`, or a norm around its attention, is missing or of another shape. d:
// width of the states; width: of a head; values: there is a v_proj.
inline void require_llm_layer(const Weights& weights, const std::string& name, int64_t d, int64_t width,
                              bool values = true) {
  const std::string attention = name + ".self_attn";
  auto rows = [&](const std::string& module) { return weights.require(module + ".weight", {-1, d})[0]; };
  int64_t queries = rows(attention + ".q_proj"), keys = rows(attention + ".k_proj");
  if (keys == 0 || keys % width != 0 || queries % keys != 0)
    throw Failure(LH_E_MODEL, attention + ": " + std::to_string(queries) + " rows of q_proj and " +
                                  std::to_string(keys) + " of k_proj are not groups of heads of " +
                                  std::to_string(width));
  if (values) weights.require_linear(attention + ".v_proj", keys, d, false);
  weights.require_linear(attention + ".o_proj", d, queries, false);
  int64_t inner = rows(name + ".mlp.gate_proj");
  weights.require_linear(name + ".mlp.up_proj", inner, d, false);
  weights.require_linear(name + ".mlp.down_proj", d, inner, false);
  for (const char* norm : {".input_layernorm.weight", ".post_attention_layernorm.weight"})
    weights.require(name + norm, {d});
}

// Throws when a tensor that Llm needs is missing or of another shape. Gives the width of the hidden states. Files for
// models that read earlier states may lack the final norm.
inline int64_t check_llm(const Weights& weights, const std::string& prefix, const LlmFacts& facts,
                         bool final_norm = true) {
  std::string root = prefix + "model.";
  int64_t d = weights.require(root + "embed_tokens.weight", {-1, -1})[1];
  int64_t layers = Llm::layers(weights, prefix);
  if (layers == 0) throw Failure(LH_E_MODEL, "missing tensor " + root + "layers.0.self_attn.q_proj.weight");
  for (int64_t i = 0; i < layers; ++i) {
    std::string name = root + "layers." + std::to_string(i);
    const int64_t width = facts.head_dim_of(i);
    require_llm_layer(weights, name, d, width, facts.has_values(i));
    for (const char* head_norm : {".self_attn.q_norm.weight", ".self_attn.k_norm.weight"})
      if (weights.has(name + head_norm)) weights.require(name + head_norm, {width});
    if (weights.has(name + ".pre_feedforward_layernorm.weight"))
      for (const char* norm : {".pre_feedforward_layernorm.weight", ".post_feedforward_layernorm.weight"})
        weights.require(name + norm, {d});
    if (weights.has(root + "layers.0.layer_scalar")) weights.require(name + ".layer_scalar", {1});
  }
  if (final_norm) weights.require(root + "norm.weight", {d});
  return d;
}

}  // namespace lora_host::nn
