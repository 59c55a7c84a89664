#include "change.h"

#include <cmath>

namespace adapters {

using lora_host::Failure;

ChangeOptions::ChangeOptions(const Options& options) {
  const auto flag = [&](const char* name) { return options.has(name) && options.flag(name); };
  rs_lora = flag("rs_lora");
  use_tucker = flag("use_tucker");
  weight_decompose = flag("weight_decompose");
  wd_on_out = flag("wd_on_out");
  detach_norm = flag("detach_norm");
  rank_dropout_scale = flag("rank_dropout_scale");
}

double ChangeAdapter::scale(const Layer& layer) const {
  const auto rank = static_cast<double>(layer->rank);
  return layer->alpha / (options_.rs_lora ? std::sqrt(rank) : rank);
}

Form ChangeAdapter::form(const Layer& layer) const {
  if (layer->dropout > 0)
    throw Failure(LH_E_SETTING,
                  "network.dropout drops activations of the rank, which this adapter does not have; use "
                  "network.rank_dropout or network.module_dropout");
  const double factor = scale(layer);
  return {
      .form = LH_FORM_WEIGHT, .scale = factor, .rank = layer->rank, .alpha = factor * static_cast<double>(layer->rank)};
}

std::vector<TrainedTensor> ChangeAdapter::tensors(const Layer& layer) const {
  std::vector<TrainedTensor> all = factors(layer);
  if (options_.weight_decompose) all.push_back({"dora_scale", LH_ROLE_OTHER, magnitude(layer), Initial::graph()});
  return all;
}

Value ChangeAdapter::factor(Graph& g, const Layer& layer, std::string_view name) const {
  for (const TrainedTensor& tensor : factors(layer))
    if (name == tensor.name) return g.input(tensor.name, tensor.shape, LH_F32);
  throw Failure(LH_E_INTERNAL, "there is no factor " + std::string(name));
}

Value ChangeAdapter::rank_mask(Graph& g, const Dims& shape) const {
  const Value kept = g.input("keep.rank", shape, LH_F32);
  if (!options_.rank_dropout_scale) return kept;
  std::vector<int64_t> axes;
  int64_t count = 1;
  for (size_t i = 0; i < shape.size(); ++i) axes.push_back(static_cast<int64_t>(i)), count *= shape[i];
  // At least one element, so that a draw that drops all gives 0.
  const auto least = static_cast<float>(1.0 / static_cast<double>(count));
  const Value floor = g.constant(Dims(shape.size(), 1), std::vector<float>{least});
  return g.div(kept, g.max(g.mean(kept, axes), floor));
}

Dims ChangeAdapter::magnitude(const Layer& layer) const {
  Dims dims(layer.weight().size(), 1);
  dims[options_.wd_on_out ? 0 : 1] = options_.wd_on_out ? layer->out : layer->in;
  return dims;
}

Value ChangeAdapter::norm(Graph& g, const Layer& layer, Value weight) const {
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < static_cast<int64_t>(layer.weight().size()); ++axis)
    if (axis != (options_.wd_on_out ? 0 : 1)) axes.push_back(axis);
  return g.sqrt(g.sum(g.square(weight), axes));
}

void ChangeAdapter::build_weight(Graph& g, const Layer& layer) const {
  const Value base = g.input("weight", layer.weight(), LH_F32);
  Value delta = change(g, layer);
  if (layer->rank_dropout > 0) {
    Dims rows(layer.weight().size(), 1);
    rows[0] = layer->out;
    delta = g.mul(delta, rank_mask(g, rows));
  }
  Value moved = g.add(base, g.affine(delta, scale(layer)));
  if (options_.weight_decompose) {
    constexpr double epsilon = 1.1920929e-07;  // beside the norm, as LyCORIS and ComfyUI have it
    Value length = norm(g, layer, moved);
    if (options_.detach_norm) length = g.detach(length);
    const Value wanted = g.input("dora_scale", magnitude(layer), LH_F32);
    moved = g.mul(moved, g.div(wanted, g.affine(length, 1, epsilon)));
  }
  g.output("weight", moved);
}

void ChangeAdapter::build_initial(Graph& g, const Layer& layer) const {
  g.output("dora_scale", norm(g, layer, g.input("weight", layer.weight(), LH_F32)));
}

Value tucker_product(Graph& g, Value core, Value left, Value right) {
  const Dims c = g.shape(core);  // [p, q, kh, kw]
  const int64_t taps = c[2] * c[3], in = g.shape(right)[1], out = g.shape(left)[0];
  const Value last = g.reshape(g.permute(core, {0, 2, 3, 1}), {c[0] * taps, c[1]});
  const Value middle = g.reshape(product(g, last, right), {c[0], taps * in});      // [p, taps in]
  const Value whole = g.reshape(product(g, left, middle), {out, c[2], c[3], in});  // [out, kh, kw, in]
  return g.permute(whole, {0, 3, 1, 2});
}

}  // namespace adapters
