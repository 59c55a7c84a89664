// LoHa (Hyeon-Woo et al. 2022, Yeh et al. 2023): the elementwise product of two low-rank matrices.
//   dW = s (w1_a w1_b) o (w2_a w2_b);  s = alpha / rank
// On a convolution the matrices are [out, in kh kw]; with cores each factor is sum_ij t[i, j] w_a[i, out] w_b[j, in].
#include "adapters.h"
#include "change.h"

namespace adapters {
namespace {

constexpr lh_option options[] = {use_tucker_option,     rs_lora_option,     weight_decompose_option,
                                 wd_on_out_option,      detach_norm_option, rank_dropout_scale_option,
                                 lora_host::option::end};

class Loha : public ChangeAdapter {
 public:
  explicit Loha(const Options& given) : ChangeAdapter(ChangeOptions(given)) {}

 protected:
  // The first product is random and the second 0, so that dW begins at 0. Deviations as in LyCORIS.
  std::vector<TrainedTensor> factors(const Layer& layer) const override {
    const int64_t r = layer->rank, in = layer->in, out = layer->out;
    if (!tucker(layer)) {
      const int64_t columns = in * layer.taps();
      return {{"hada_w1_a", LH_ROLE_UP, {out, r}, Initial::normal(0.1)},
              {"hada_w1_b", LH_ROLE_DOWN, {r, columns}, Initial::normal(1)},
              {"hada_w2_a", LH_ROLE_UP, {out, r}},
              {"hada_w2_b", LH_ROLE_DOWN, {r, columns}, Initial::normal(1)}};
    }
    const Dims core{r, r, layer->kernel[0], layer->kernel[1]};
    return {{"hada_t1", LH_ROLE_OTHER, core, Initial::normal(0.1)},
            {"hada_w1_a", LH_ROLE_UP, {r, out}, Initial::normal(0.1)},
            {"hada_w1_b", LH_ROLE_DOWN, {r, in}, Initial::normal(1)},
            {"hada_t2", LH_ROLE_OTHER, core, Initial::normal(0.1)},
            {"hada_w2_a", LH_ROLE_UP, {r, out}},
            {"hada_w2_b", LH_ROLE_DOWN, {r, in}, Initial::normal(1)}};
  }

  Value change(Graph& g, const Layer& layer) const override {
    const Value first = half(g, layer, "hada_t1", "hada_w1_a", "hada_w1_b");
    return g.mul(first, half(g, layer, "hada_t2", "hada_w2_a", "hada_w2_b"));
  }

 private:
  Value half(Graph& g, const Layer& layer, const char* core, const char* left, const char* right) const {
    const Value a = factor(g, layer, left), b = factor(g, layer, right);
    if (tucker(layer)) return tucker_product(g, factor(g, layer, core), g.permute(a, {1, 0}), b);
    return g.reshape(product(g, a, b), layer.weight());
  }
};

}  // namespace

constinit const lh_adapter loha = lora_host::adapter<Loha>("loha", options);

}  // namespace adapters
