// Full training of chosen weights: dW itself is trained, from 0, and saved as the whole change ("diff").
#include "adapters.h"
#include "change.h"

namespace adapters {
namespace {

class Full : public Adapter {
 public:
  explicit Full(const Options&) {}

  Form form(const Layer& layer) const override {
    if (layer->dropout > 0 || layer->rank_dropout > 0)
      throw lora_host::Failure(LH_E_SETTING,
                               "network.dropout and network.rank_dropout drop parts of a rank, which `full` does not "
                               "have; use network.module_dropout");
    return {.form = LH_FORM_WEIGHT};
  }
  std::vector<TrainedTensor> tensors(const Layer& layer) const override {
    return {{"diff", LH_ROLE_WEIGHT, layer.weight()}};
  }
  void build_weight(Graph& g, const Layer& layer) const override {
    const Value base = g.input("weight", layer.weight(), LH_F32);
    g.output("weight", g.add(base, g.input("diff", layer.weight(), LH_F32)));
  }
};

}  // namespace

constinit const lh_adapter full = lora_host::adapter<Full>("full");

}  // namespace adapters
