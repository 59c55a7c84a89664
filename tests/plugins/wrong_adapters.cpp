// An adapter with the mistakes that authors make; the option says which.
#include "lora_host/lora_host.hpp"

namespace {

using lora_host::Dims;
using lora_host::Form;
using lora_host::Graph;
using lora_host::Layer;
using lora_host::TrainedTensor;

constexpr const char* mistakes[] = {"none",      "no_output", "shape",      "input", "endless",
                                    "no_tensor", "twice",     "no_build",   "pair",  "initial",
                                    "factors",   "scale",     "from_start", "keep",  nullptr};
constexpr lh_option options[] = {lora_host::option::choice("mistake", "none", mistakes, "Which."),
                                 lora_host::option::end};

class Wrong : public lora_host::Adapter {
 public:
  explicit Wrong(const lora_host::Options& given) : mistake_(given.text("mistake")) {}

  Form form(const Layer&) const override {
    return {.form = is("no_build") ? LH_FORM_OUTPUT
                    : is("pair")   ? LH_FORM_PAIR
                                   : LH_FORM_WEIGHT,
            .scale = is("scale") ? NAN : 1,
            .from_start = is("from_start")};
  }
  std::vector<TrainedTensor> tensors(const Layer& layer) const override {
    std::vector<TrainedTensor> all;
    if (!is("no_tensor")) all.push_back({"shift", LH_ROLE_OTHER, {layer->out, 1}});
    if (is("twice")) all.push_back(all[0]);
    if (is("initial")) all[0].initial = lora_host::Initial::graph();
    if (is("factors")) all[0].initial = lora_host::Initial::qr();
    if (is("endless")) all.resize(100, all[0]);
    return all;
  }
  void build_weight(Graph& g, const Layer& layer) const override {
    auto weight = g.input("weight", layer.weight(), LH_F32);
    auto shift = g.input(is("input") ? "shifts" : "shift", {layer->out, 1}, LH_F32);
    if (is("keep")) shift = g.mul(shift, g.input("keep.rank", {layer->out, 1}, LH_F32));
    if (is("no_output")) return;
    g.output("weight", is("shape") ? shift : g.add(weight, shift));
  }

 private:
  bool is(const char* mistake) const { return mistake_ == mistake; }
  std::string mistake_;
};

constexpr lh_adapter wrong = lora_host::adapter<Wrong>("wrong", options);

}  // namespace

LORA_HOST_PLUGIN("wrong_adapters", "0", "MIT", {LH_ADAPTER_FACTORY, &wrong})
