// An adapter whose tensors no table knows, in every form; the option says which.
//   weight, output   each row of the weight times 1 + gain; of the output the bias too
//   pair             two matrices whose change is counted from their start
//   bent             an output that is no linear function of the input
#include "lora_host/lora_host.hpp"

namespace {

using lora_host::Dims;
using lora_host::Form;
using lora_host::Graph;
using lora_host::Initial;
using lora_host::Layer;
using lora_host::TrainedTensor;
using lora_host::Value;

constexpr const char* forms[] = {"weight", "output", "pair", "bent", nullptr};
constexpr lh_option options[] = {lora_host::option::choice("how", "weight", forms, "Which."),
                                 lora_host::option::real("strength", "1", lora_host::option::any, "Of the gain."),
                                 lora_host::option::end};

class Stranger : public lora_host::Adapter {
 public:
  explicit Stranger(const lora_host::Options& given) : how_(given.text("how")), strength_(given.real("strength")) {}

  Form form(const Layer& layer) const override {
    const auto rank = static_cast<double>(layer->rank);
    if (how_ == "pair")
      return {.form = LH_FORM_PAIR,
              .scale = layer->alpha / rank,
              .rank = layer->rank,
              .alpha = layer->alpha,
              .from_start = true};
    return {.form = how_ == "weight" ? LH_FORM_WEIGHT : LH_FORM_OUTPUT};
  }

  std::vector<TrainedTensor> tensors(const Layer& layer) const override {
    if (how_ != "pair") return {{"gain", LH_ROLE_OTHER, {layer->out}}};
    Dims down = layer.weight(), up{layer->out, layer->rank};
    down[0] = layer->rank;
    if (layer.is_conv()) up.insert(up.end(), {1, 1});
    return {{"mine_a", LH_ROLE_DOWN, down, Initial::normal(1)}, {"mine_b", LH_ROLE_UP, up, Initial::normal(1)}};
  }

  void build_weight(Graph& g, const Layer& layer) const override {
    Dims column(layer.weight().size(), 1);
    column[0] = layer->out;
    const Value weight = g.input("weight", layer.weight(), LH_F32);
    g.output("weight", g.mul(weight, g.reshape(gain(g, layer), column)));
  }

  void build_output(Graph& g, const Layer& layer, const Dims&, const Dims& shape) const override {
    const Value y = g.input("y", shape), scaled = g.mul(y, g.cast(gain(g, layer), LH_FLOAT));
    g.output("y", how_ == "bent" ? g.silu(scaled) : scaled);
  }

 private:
  Value gain(Graph& g, const Layer& layer) const {
    return g.affine(g.input("gain", {layer->out}, LH_F32), strength_, 1);
  }
  std::string how_;
  double strength_;
};

constexpr lh_adapter stranger = lora_host::adapter<Stranger>("stranger", options);

}  // namespace

LORA_HOST_PLUGIN("stranger", "0", "MIT", {LH_ADAPTER_FACTORY, &stranger})
