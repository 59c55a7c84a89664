// LoKr (Yeh et al. 2023): a Kronecker product.
//   dW = s kron(w1, w2);  w1 [a, b], w2 [c, d, kh, kw];  out = a c, in = b d
// Each factor is whole or a product of two matrices of the rank. s = alpha / rank; with both whole there is no rank and
// s is 1, as LyCORIS and ComfyUI have it.
#include "adapters.h"
#include "change.h"
#include "factorise.h"

namespace adapters {
namespace {

namespace option = lora_host::option;

constexpr lh_option options[] = {
    option::integer("factor", "-1", option::within(-1, 4096),
                    "Size of the first factor; it divides both sides of the weight as far as they have such a divisor. "
                    "-1: as even as possible."),
    option::flag("decompose_both", "false", "The first factor is a product of matrices of the rank, too."),
    option::flag("full_matrix", "false", "Both factors are whole, whatever the rank."),
    use_tucker_option,
    rs_lora_option,
    weight_decompose_option,
    wd_on_out_option,
    detach_norm_option,
    rank_dropout_scale_option,
    option::end};

class Lokr : public ChangeAdapter {
 public:
  explicit Lokr(const Options& given)
      : ChangeAdapter(ChangeOptions(given)),
        factor_(given.integer("factor")),
        both_(given.flag("decompose_both")),
        whole_(given.flag("full_matrix")) {
    if (factor_ == 0) throw lora_host::Failure(LH_E_SETTING, "lokr: factor is 0, expected -1 or 1 to 4096");
  }

  // Beside a linear layer the factors are applied one after the other, and no [out, in] product is made.
  Form form(const Layer& layer) const override {
    Form form = ChangeAdapter::form(layer);
    if (!layer.is_conv() && !options_.weight_decompose) form.form = LH_FORM_OUTPUT;
    return form;
  }

  // y[i, k] += s sum_j w1[i, j] sum_l w2[k, l] x[j, l]
  void build_output(Graph& g, const Layer& layer, const Dims& x, const Dims& y) const override {
    const Split at = split(layer);
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < x.size(); ++i) rows *= x[i];
    Value v = g.reshape(g.input("x", x), {rows, at.b, at.d});
    const auto through = [&](const char* name) { v = g.linear(v, g.cast(factor(g, layer, name), LH_FLOAT)); };
    const auto steps = [&](bool divided, const char* whole, const char* left, const char* right) {
      if (!divided) return through(whole);
      through(right), through(left);
    };
    steps(at.second, "lokr_w2", "lokr_w2_a", "lokr_w2_b");  // [rows, b, c]
    v = g.permute(v, {0, 2, 1});
    steps(at.first, "lokr_w1", "lokr_w1_a", "lokr_w1_b");  // [rows, c, a]
    v = g.reshape(g.permute(v, {0, 2, 1}), y);
    if (layer->rank_dropout > 0) v = g.mul(v, g.cast(rank_mask(g, {layer->out}), LH_FLOAT));
    g.output("y", g.add(g.input("y", y), g.affine(v, scale(layer))));
  }

 protected:
  double scale(const Layer& layer) const override {
    const Split at = split(layer);
    return at.first || at.second ? ChangeAdapter::scale(layer) : 1;
  }

  // The last matrix begins at 0, as in LyCORIS.
  std::vector<TrainedTensor> factors(const Layer& layer) const override {
    const Split at = split(layer);
    const int64_t r = layer->rank, taps = layer.taps(), kh = layer->kernel[0], kw = layer->kernel[1];
    std::vector<TrainedTensor> all;
    if (at.first) {
      all.push_back({"lokr_w1_a", LH_ROLE_UP, {at.a, r}, Initial::kaiming(r)});
      all.push_back({"lokr_w1_b", LH_ROLE_DOWN, {r, at.b}, Initial::kaiming(at.b)});
    } else {
      all.push_back({"lokr_w1", LH_ROLE_OTHER, {at.a, at.b}, Initial::kaiming(at.b)});
    }
    if (!at.second) {
      all.push_back({"lokr_w2", LH_ROLE_OTHER, layer.is_conv() ? Dims{at.c, at.d, kh, kw} : Dims{at.c, at.d}});
    } else if (tucker(layer)) {
      all.push_back({"lokr_t2", LH_ROLE_OTHER, {r, r, kh, kw}, Initial::kaiming(r * taps)});
      all.push_back({"lokr_w2_a", LH_ROLE_UP, {r, at.c}, Initial::kaiming(at.c)});
      all.push_back({"lokr_w2_b", LH_ROLE_DOWN, {r, at.d}});
    } else {
      all.push_back({"lokr_w2_a", LH_ROLE_UP, {at.c, r}, Initial::kaiming(r)});
      all.push_back({"lokr_w2_b", LH_ROLE_DOWN, {r, at.d * taps}});
    }
    return all;
  }

  Value change(Graph& g, const Layer& layer) const override {
    const Split at = split(layer);
    const int64_t taps = layer.taps();
    const auto input = [&](const char* name) { return factor(g, layer, name); };
    const Value first = at.first ? product(g, input("lokr_w1_a"), input("lokr_w1_b")) : input("lokr_w1");
    Value second;
    if (!at.second)
      second = input("lokr_w2");
    else if (tucker(layer))
      second = tucker_product(g, input("lokr_t2"), g.permute(input("lokr_w2_a"), {1, 0}), input("lokr_w2_b"));
    else
      second = product(g, input("lokr_w2_a"), input("lokr_w2_b"));
    return g.reshape(g.mul(g.reshape(first, {at.a, 1, at.b, 1, 1}), g.reshape(second, {1, at.c, 1, at.d, taps})),
                     layer.weight());
  }

 private:
  struct Split {
    int64_t a, b, c, d;
    bool first, second;  // is the factor a product of two matrices?
  };
  Split split(const Layer& layer) const {
    const auto [a, c] = factorise(layer->out, factor_);
    const auto [b, d] = factorise(layer->in, factor_);
    const auto smaller = [&](int64_t x, int64_t y) { return !whole_ && 2 * layer->rank < std::max(x, y); };
    return {a, b, c, d, both_ && smaller(a, b), smaller(c, d)};
  }

  int64_t factor_;
  bool both_, whole_;
};

}  // namespace

constinit const lh_adapter lokr = lora_host::adapter<Lokr>("lokr", options);

}  // namespace adapters
