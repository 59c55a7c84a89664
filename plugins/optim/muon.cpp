// Muon (Jordan 2024): the average of the gradients of a matrix, made orthogonal by five Newton-Schulz steps. "muon" as
// torch.optim.Muon: matrices; "muon_keller" as KellerJordan/Muon: 4-D tensors too, as [d0, d1 d2 d3]. Other tensors are
// AdamW's, with lr times adamw_lr_ratio.
//   m = momentum m + (1 - momentum) g;  u = nesterov ? (1 - momentum) g + momentum m : m
//   X = u / |u|;  five times: A = X X^T, X = a X + (b A + c A A) X
//   p -= lr (wd p + ratio X)
#include <algorithm>
#include <cmath>

#include "optimizers.h"

namespace optim {
namespace {

constexpr const char* adjustments[] = {"original", "match_rms_adamw", "spectral_unclamped", nullptr};

#define MUON_OPTIONS(adam_eps, adam_betas, adam_decay, decay, ratio)                                  \
  option::real("momentum", "0.95", option::from_below(0, 1), "Decay of the average of gradients."),   \
      option::flag("nesterov", "true", "Look ahead by one step of the average."),                     \
      option::real("weight_decay", decay, option::at_least(0),                                        \
                   "Share of a matrix, times lr, that goes at each step."),                           \
      option::reals("ns_coefficients", "[3.4445, -4.775, 2.0315]", 3, option::any,                    \
                    "a, b, c of a Newton-Schulz step."),                                              \
      option::integer("ns_steps", "5", option::within(1, 20), "How many of them."),                   \
      option::real("adamw_lr_ratio", ratio, option::above(0),                                         \
                   "Learning rate of the other tensors, as a share of lr."),                          \
      option::reals("adamw_betas", adam_betas, 2, option::from_below(0, 1), "Of the other tensors."), \
      option::real("adamw_eps", adam_eps, option::at_least(0), "Of the other tensors."),              \
      option::real("adamw_weight_decay", adam_decay, option::at_least(0), "Of the other tensors.")

constexpr lh_option options[] = {
    MUON_OPTIONS("1e-8", "[0.9, 0.999]", "0.01", "0.1", "1"),
    option::real("eps", "1e-7", option::above(0), "Least norm that a matrix is divided by."),
    option::choice("adjust_lr_fn", "original", adjustments,
                   "Factor of lr by the matrix's rows and columns: sqrt(max(1, rows / columns)), 0.2 sqrt(max(rows, "
                   "columns)) or sqrt(rows / columns)."),
    option::end};
constexpr lh_option keller_options[] = {MUON_OPTIONS("1e-10", "[0.9, 0.95]", "0", "0", "0.015"), option::end};

// What the two differ in.
struct Torch {
  static constexpr bool convolutions = false;
};
struct Keller {
  static constexpr bool convolutions = true;
};

template <typename Kind>
class Muon : public lora_host::Optimizer {
 public:
  explicit Muon(const Options& options)
      : momentum_(options.real("momentum")),
        nesterov_(options.flag("nesterov")),
        weight_decay_(options.real("weight_decay")),
        coefficients_(options.reals("ns_coefficients")),
        ns_steps_(options.integer("ns_steps")),
        lr_ratio_(options.real("adamw_lr_ratio")),
        betas_(options.reals("adamw_betas")),
        adamw_eps_(options.real("adamw_eps")),
        adamw_weight_decay_(options.real("adamw_weight_decay")) {
    if constexpr (!Kind::convolutions) {
      eps_ = options.real("eps");
      adjustment_ = options.text("adjust_lr_fn");
    }
  }

  States states(const Parameter& p) const override {
    if (is_matrix(p)) return {State::like(p, "m", LH_MEANING_AVERAGE)};
    return {State::like(p, "m", LH_MEANING_AVERAGE), State::like(p, "v", LH_MEANING_SQUARE_AVERAGE)};
  }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter& p) const override {
    if (!is_matrix(p)) return adamw(g);
    const Value m = g.average(g.state("m"), g.g(), momentum_);
    g.set("m", m);
    const Value direction = nesterov_ ? g.average(m, g.g(), momentum_) : m;
    const int64_t rows = p.dims[0], columns = p.elements() / rows;
    const Value matrix = p.dims.size() == 2 ? direction : g.reshape(direction, {rows, columns});
    Value step = g.scale(orthogonal(g, matrix, rows, columns), ratio(p));
    if (p.dims.size() != 2) step = g.reshape(step, p.dims);
    if (weight_decay_ != 0) step = g.add(step, g.scale(g.p(), weight_decay_));
    g.set("p", g.sub(g.p(), g.mul(step, g.lr())));
  }

 private:
  static bool is_matrix(const Parameter& p) { return p.dims.size() == 2 || (Kind::convolutions && p.dims.size() == 4); }

  // KellerJordan's takes the last two axes of a convolution: its kernel's.
  double ratio(const Parameter& p) const {
    const double rows = static_cast<double>(p.dims[p.dims.size() - 2]), columns = static_cast<double>(p.dims.back());
    if (adjustment_ == "match_rms_adamw") return 0.2 * std::sqrt(std::max(rows, columns));
    if (adjustment_ == "spectral_unclamped") return std::sqrt(rows / columns);
    return std::sqrt(std::max(1.0, rows / columns));
  }

  // x: [R, C]. An adapter's matrices have one short side, in whose space newton_schulz iterates.
  Value orthogonal(UpdateGraph& g, Value x, int64_t rows, int64_t columns) const {
    constexpr int64_t short_side = 128;
    const Value norm = g.sqrt(g.sum(g.square(x), {0, 1}));  // [1, 1]
    const Value divisor = Kind::convolutions ? g.shift(norm, 1e-7) : g.max(norm, g.number(eps_));
    if (std::min(rows, columns) <= short_side)
      return g.newton_schulz(x, g.div(g.number(1), divisor), coefficients_[0], coefficients_[1], coefficients_[2],
                             ns_steps_);
    const bool tall = rows > columns;
    x = g.div(tall ? g.permute(x, {1, 0}) : x, divisor);
    for (int64_t i = 0; i < ns_steps_; ++i) {
      const Value a = g.matmul(x, x, false, true);
      const Value b = g.add(g.scale(a, coefficients_[1]), g.scale(g.matmul(a, a), coefficients_[2]));
      x = g.add(g.scale(x, coefficients_[0]), g.matmul(b, x));
    }
    return tall ? g.permute(x, {1, 0}) : x;
  }

  void adamw(UpdateGraph& g) const {
    const std::vector<Value> out = g.adamw_update(g.p(), g.g(), g.state("m"), g.state("v"), g.scale(g.lr(), lr_ratio_),
                                                  g.step(), betas_[0], betas_[1], adamw_eps_, adamw_weight_decay_);
    g.set("p", out[0]);
    g.set("m", out[1]);
    g.set("v", out[2]);
  }

  double momentum_;
  bool nesterov_;
  double weight_decay_;
  std::vector<double> coefficients_;
  int64_t ns_steps_;
  double lr_ratio_;
  std::vector<double> betas_;
  double adamw_eps_, adamw_weight_decay_, eps_ = 0;
  std::string adjustment_ = "original";
};

}  // namespace

constinit const lh_optimizer muon = lora_host::optimizer<Muon<Torch>>("muon", options);
constinit const lh_optimizer muon_keller =
    lora_host::optimizer<Muon<Keller>>("muon_keller", keller_options, nullptr, 1, 0.02);

}  // namespace optim
