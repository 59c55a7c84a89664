// Adapters that change a layer's weight: W' = W + dW, brought to trained norms where the weight is decomposed (DoRA,
// Liu et al. 2024):
//
//   M = W + dW;  W' = m M / |M|
//
// |M| is the norm over everything but one axis: that of inputs, m [1, in, ...], or that of outputs, m [out, 1, ...], as
// LyCORIS has both. `detach_norm` lets no gradient through |M|, as PEFT does. m begins as |W|.
//
// Rank dropout leaves out rows of dW, as LyCORIS does; `rank_dropout_scale` divides by the share that is left.
#pragma once

#include <optional>

#include "lora_host/lora_host.hpp"

namespace adapters {

using lora_host::Adapter;
using lora_host::Dims;
using lora_host::Form;
using lora_host::Graph;
using lora_host::Initial;
using lora_host::Layer;
using lora_host::Options;
using lora_host::TrainedTensor;
using lora_host::Value;

constexpr lh_option rank_dropout_scale_option = lora_host::option::flag(
    "rank_dropout_scale", "false", "Divide by the share that rank dropout leaves, where it drops rows of the change.");
constexpr lh_option rs_lora_option =
    lora_host::option::flag("rs_lora", "false", "Scale by alpha / sqrt(rank) instead of alpha / rank (rsLoRA).");
constexpr lh_option use_tucker_option = lora_host::option::flag(
    "use_tucker", "false", "Put a core of [rank, rank, kh, kw] between the matrices of a convolution.");
constexpr lh_option weight_decompose_option =
    lora_host::option::flag("weight_decompose", "false", "Train the norms of the weight apart from it (DoRA).");
constexpr lh_option wd_on_out_option = lora_host::option::flag(
    "wd_on_out", "false",
    "Of decomposed weights: a norm for each output, as diffusers loads it, instead of each input, as ComfyUI does.");
constexpr lh_option detach_norm_option = lora_host::option::flag(
    "detach_norm", "false", "Of decomposed weights: let no gradient through the norm, as PEFT does.");

// What the options above say. An option that the adapter's list does not have is false.
struct ChangeOptions {
  explicit ChangeOptions(const Options& options);
  bool rs_lora, use_tucker, weight_decompose, wd_on_out, detach_norm, rank_dropout_scale;
};

class ChangeAdapter : public Adapter {
 public:
  explicit ChangeAdapter(const ChangeOptions& options) : options_(options) {}

  Form form(const Layer& layer) const override;
  std::vector<TrainedTensor> tensors(const Layer& layer) const override;
  void build_weight(Graph& g, const Layer& layer) const override;
  void build_initial(Graph& g, const Layer& layer) const override;

 protected:
  virtual std::vector<TrainedTensor> factors(const Layer& layer) const = 0;
  // dW without its scale, like the weight.
  virtual Value change(Graph& g, const Layer& layer) const = 0;
  // That dW is multiplied by; readers of files compute alpha / rank.
  virtual double scale(const Layer& layer) const;
  // Has the layer a core?
  bool tucker(const Layer& layer) const { return options_.use_tucker && layer.taps() > 1; }
  // An input of the graph, by its name among the factors.
  Value factor(Graph& g, const Layer& layer, std::string_view name) const;
  // 1, or 0 for what is dropped, over the mean where that is wanted; shape: of the mask.
  Value rank_mask(Graph& g, const Dims& shape) const;

  ChangeOptions options_;

 private:
  Dims magnitude(const Layer& layer) const;
  // |M| like the magnitude.
  Value norm(Graph& g, const Layer& layer, Value weight) const;
};

// core [p, q, kh, kw], left [out, p], right [q, in] -> [out, in, kh, kw]: sum over p and q.
Value tucker_product(Graph& g, Value core, Value left, Value right);
// a [n, m], b [m, k] -> [n, k]
inline Value product(Graph& g, Value a, Value b) { return g.matmul(a, b); }

}  // namespace adapters
