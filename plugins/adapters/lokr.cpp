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
  // What lies between the two sums is kept for the backward pass: b c numbers of a row, or a d if that over j is first.
  void build_output(Graph& g, const Layer& layer, const Dims& x, const Dims& y) const override {
    const Split at = split(layer);
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < x.size(); ++i) rows *= x[i];
    const Value w1 = first_scaled(g, layer, at);
    Value v = g.reshape(g.input("x", x), {rows, at.b, at.d});
    const bool mixed_first = at.a * at.d < at.b * at.c;
    if (mixed_first) v = g.matmul(w1, v);
    v = through_second(g, layer, at, v);
    if (!mixed_first) v = g.matmul(w1, v);
    v = g.reshape(v, y);
    if (layer->rank_dropout > 0) v = g.mul(v, g.cast(rank_mask(g, {layer->out}), LH_FLOAT));
    g.output("y", g.add(g.input("y", y), v));
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

  // s w1 [1, a, b], which each row's matrix is multiplied by: scaled here it is no pass over all rows.
  Value first_scaled(Graph& g, const Layer& layer, const Split& at) const {
    Value w1 = at.first ? product(g, factor(g, layer, "lokr_w1_a"), factor(g, layer, "lokr_w1_b"))
                        : factor(g, layer, "lokr_w1");
    if (const double s = scale(layer); s != 1) w1 = g.affine(w1, s);
    return g.reshape(w1, {1, at.a, at.b});
  }

  // v [rows, n, d] -> [rows, n, c]. Matrices of the rank are multiplied with each other first, unless w2 is so large
  // that its product with v is no longer bound by reading v and writing the result.
  Value through_second(Graph& g, const Layer& layer, const Split& at, Value v) const {
    if (!at.second) return g.linear(v, factor(g, layer, "lokr_w2"));
    constexpr int64_t balance =
        128;  // of multiply-adds and numbers of 16 bits, that a device makes and moves at a time
    const Value left = factor(g, layer, "lokr_w2_a"), right = factor(g, layer, "lokr_w2_b");
    if (at.c * at.d <= balance * (at.c + at.d + 2 * layer->rank)) return g.linear(v, product(g, left, right));
    return g.linear(g.linear(v, right), left);
  }

  int64_t factor_;
  bool both_, whole_;
};

}  // namespace

constinit const lh_adapter lokr = lora_host::adapter<Lokr>("lokr", options);

}  // namespace adapters
