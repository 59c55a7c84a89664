// An adapter that trains one factor for each input of a layer, in the manner of (IA)^3 (Liu et al. 2022):
//   W' = W diag(1 + strength s)
#include <lora_host/lora_host.hpp>

namespace {

using lora_host::Dims;
using lora_host::Form;
using lora_host::Graph;
using lora_host::Layer;
using lora_host::Options;
using lora_host::TrainedTensor;
using lora_host::Value;
namespace option = lora_host::option;

// What `network.network_kwargs` may hold; the host checks names, types and ranges.
constexpr lh_option options[] = {
    option::real("strength", "1", option::above(0), "What the trained factors are multiplied by."), option::end};

class InputScale : public lora_host::Adapter {
 public:
  explicit InputScale(const Options& given) : strength_(given.real("strength")) {}

  // The weight is changed: build_weight. A rate that this adapter has no use for is refused, not ignored.
  Form form(const Layer& layer) const override {
    if (layer->dropout > 0 || layer->rank_dropout > 0)
      throw lora_host::Failure(LH_E_SETTING, "input_scale has no rank to drop parts of; use network.module_dropout");
    return {.form = LH_FORM_WEIGHT};
  }

  // One tensor for each layer: the host makes it, starts it at zero, saves and restores it.
  std::vector<TrainedTensor> tensors(const Layer& layer) const override {
    return {{"input_scale", LH_ROLE_OTHER, factors(layer)}};
  }

  void build_weight(Graph& g, const Layer& layer) const override {
    Value weight = g.input("weight", layer.weight(), LH_F32), s = g.input("input_scale", factors(layer), LH_F32);
    g.output("weight", g.add(weight, g.affine(g.mul(weight, s), strength_)));
  }

 private:
  // [1, in], of a convolution [1, in, 1, 1]
  static Dims factors(const Layer& layer) {
    Dims dims(layer.weight().size(), 1);
    dims[1] = layer->in;
    return dims;
  }

  double strength_;
};

constexpr lh_adapter input_scale = lora_host::adapter<InputScale>("input_scale", options);

}  // namespace

LORA_HOST_PLUGIN("input_scale", "0.1.0", "MIT", {LH_ADAPTER_FACTORY, &input_scale})
