// Prodigy with a schedule-free average, as prodigy-plus-schedule-free 2 has it with its states in float32. p is y,
// where gradients are taken; the weights that are saved are x. lr is a factor of the estimated rate d, usually 1.
//   dlr = d lr;  c = dlr^2 / sum of dlr^2 (times (1 - b1) schedulefree_c, at most 1, where that is not 0)
//   v = b2 v + (1 - b2) d^2 g^2, factored over the two longest axes;  u = d g / (sqrt(v) + d eps)
//     (eps null: 4 / pi atan2(d g, sqrt(v)));  use_stableadamw: u /= sqrt(max(1, RMS(u)));  u += wd y
//   of every 11th element: num = d^2 / sqrt(d0) <g, p0 - z>;  s = b3 s + d^2 / sqrt(d0) g
//   y += c (z - y);  z -= dlr u;  y -= dlr (1 - b1 (1 - c)) u;  x = y + (1 - 1 / b1) (z - y)
//   N = b3 N, + num where d > d0 or num > 0;  d_hat = N / |s|_1, at most 2^(1/4) d with d_limiter
//   d = max(d, d_coef d_hat)
#include <cmath>
#include <numbers>
#include <optional>

#include "factored.h"
#include "radam.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::reals("betas", "[0.9, 0.99]", 2, option::between(0, 1), "Place of y between x and z; decay of g^2."),
    option::nullable(option::real("beta3", nullptr, option::from_below(0, 1),
                                  "Decay of what d is estimated from; null: the root of the second beta.")),
    option::nullable(option::real("eps", "1e-8", option::at_least(0), "Added to the root, times d; null: atan2.")),
    option::real("weight_decay", "0", option::at_least(0), "Share of y, times d lr, that goes at each step."),
    option::real("d0", "1e-6", option::above(0), "First estimate of d."),
    option::real("d_coef", "1", option::above(0), "Factor of the estimate."),
    option::flag("d_limiter", "true", "Let d grow by at most the fourth root of 2 in a step."),
    option::integer("prodigy_steps", "0", option::within(0, 1e9), "Keep d from this step on; 0: never."),
    option::real("schedulefree_c", "0", option::at_least(0), "Weight of a step in the average; 0: its d lr alone."),
    option::flag("factored", "true", "Keep the second moment of large tensors by rows and columns."),
    option::flag("use_bias_correction", "false", "RAdam's correction of the first steps."),
    option::flag("use_stableadamw", "true", "Scale updates down whose RMS is above 1."),
    option::end};
constexpr const char* names[] = {"prodigyplus", "ProdigyPlusScheduleFree", "prodigyplus.ProdigyPlusScheduleFree",
                                 "prodigy_schedulefree", nullptr};
constexpr int64_t stride = 11;  // of the elements that d is estimated from

// The two longest axes of a tensor, a later one of equal length first. Not where every axis is short.
struct Axes {
  explicit Axes(const Dims& dims) {
    if (dims.size() < 2) return;
    for (size_t i = 0; i < dims.size(); ++i) {
      large |= dims[i] >= 32;
      const auto axis = static_cast<int64_t>(i);
      if (longest < 0 || dims[i] >= dims[static_cast<size_t>(longest)])
        next = longest, longest = axis;
      else if (next < 0 || dims[i] >= dims[static_cast<size_t>(next)])
        next = axis;
    }
  }
  int64_t longest = -1, next = -1;
  bool large = false;
};

class ProdigyScheduleFree : public lora_host::Optimizer {
 public:
  explicit ProdigyScheduleFree(const Options& options)
      : betas_(options.reals("betas")),
        beta3_(options.find_real("beta3").value_or(std::sqrt(betas_[1]))),
        eps_(options.find_real("eps")),
        weight_decay_(options.real("weight_decay")),
        d0_(options.real("d0")),
        d_coef_(options.real("d_coef")),
        limiter_(options.flag("d_limiter")),
        last_(static_cast<double>(options.integer("prodigy_steps"))),
        c_factor_(options.real("schedulefree_c") * (1 - betas_[0])),
        factored_(options.flag("factored")),
        bias_correction_(options.flag("use_bias_correction")),
        stable_(options.flag("use_stableadamw")) {}

  uint32_t passes() const override { return 2; }

  States states(const Parameter& p) const override {
    const Dims few{(p.elements() + stride - 1) / stride, 1};
    States states{State::of_group("d", d0_),
                  State::of_group("d_numerator"),
                  State::of_group("weight_sum"),
                  State::copy_of(p, "z"),
                  {"p0", few},
                  {"s", few}};
    const Axes axes(p.dims);
    if (!factored_ || !axes.large) {
      states.push_back(State::like(p, "v"));
      return states;
    }
    Dims row = p.dims, col = p.dims;
    row[static_cast<size_t>(axes.longest)] = col[static_cast<size_t>(axes.next)] = 1;
    states.push_back({"v_row", row});
    states.push_back({"v_col", col});
    return states;
  }

  // 0: nothing but the numbers of the step.
  void build_pass(UpdateGraph& g, uint32_t pass, const Parameter& p) const override {
    if (pass == 0) return;
    estimate_of(g, p);
    const Value dg = g.mul(g.g(), g.state("d")), root = root_of(g, p, g.square(dg));
    Value u = eps_ ? g.div(dg, g.add(root, g.scale(g.state("d"), *eps_))) : angle(g, dg, root);
    if (stable_) u = g.div(u, g.sqrt(g.max(rms(g, p, u), g.number(1))));
    if (weight_decay_ != 0) u = g.add(u, g.scale(g.p(), weight_decay_));
    const Value y = g.add(g.p(), g.mul(g.sub(g.state("z"), g.p()), g.scalar("c")));
    g.set("p", g.sub(y, g.mul(u, g.scalar("y_rate"))));
    g.set("z", g.sub(g.state("z"), g.mul(u, g.scalar("rate"))));
  }

  void build_between(UpdateGraph& g, uint32_t pass) const override {
    if (pass == 0)
      begin(g);
    else
      estimate(g);
  }

  void build_evaluation(UpdateGraph& g, const Parameter&) const override {
    g.set("p", g.add(g.p(), g.scale(g.sub(g.state("z"), g.p()), 1 - 1 / betas_[0])));
  }

 private:
  void begin(UpdateGraph& g) const {
    const Value d = g.state("d"), none = g.number(0);
    Value rate = g.mul(d, g.lr()), rest = g.number(1 - betas_[1]);  // of the average of g^2
    if (bias_correction_) {
      const Rectification r(g, betas_[1]);
      rate = g.mul(rate, g.where(r.defined, r.rect, none));
      rest = g.div(rest, g.one_minus_power(betas_[1], g.step()));
    }
    const Value weight = g.square(rate), sum = g.add(g.state("weight_sum"), weight);
    Value c = g.where(g.greater(sum, none), g.div(weight, sum), none);
    if (c_factor_ != 0) c = g.min(g.scale(c, c_factor_), g.number(1));
    g.set("weight_sum", sum);
    g.set("c", c);
    g.set("rate", rate);
    g.set("y_rate", g.mul(rate, g.affine(c, betas_[0], 1 - betas_[0])));  // rate (1 - b1 (1 - c))
    g.set("rest", rest);
    g.set("share", g.scale(g.square(d), 1 / std::sqrt(d0_)));
  }

  // x of every 11th element. [ceil(n / 11), 1]
  static Value few(UpdateGraph& g, const Parameter& p, Value x) {
    const int64_t n = p.elements();
    return g.reshape(g.every(g.reshape(x, {n}), stride), {(n + stride - 1) / stride, 1});
  }

  void estimate_of(UpdateGraph& g, const Parameter& p) const {
    const Value gradient = few(g, p, g.g()), z = few(g, p, g.state("z"));
    const Value p0 = g.where(g.equal(g.step(), g.number(1)), z, g.state("p0"));
    const Value s = g.add(g.scale(g.state("s"), beta3_), g.mul(gradient, g.scalar("share")));
    g.set("p0", p0);
    g.set("s", s);
    g.reduce_sum("distance", g.mul(gradient, g.sub(p0, z)));
    g.reduce_sum("s", g.abs(s));
  }

  // sqrt(v) after `square` joined it. The package's mean of the rows is over the axis before `next` where that is
  // behind `longest`, which in a tall matrix has length 1.
  Value root_of(UpdateGraph& g, const Parameter& p, Value square) const {
    const Value rest = g.scalar("rest"), decay = g.affine(rest, -1, 1);
    const auto joined = [&](const char* name, Value now) {
      const Value average = g.add(g.mul(g.state(name), decay), g.mul(now, rest));
      g.set(name, average);
      return average;
    };
    const Axes axes(p.dims);
    if (!factored_ || !axes.large) return g.sqrt(joined("v", square));
    const Value row = joined("v_row", g.mean(square, {axes.longest})),
                col = joined("v_col", g.mean(square, {axes.next}));
    const int64_t axis = axes.next < axes.longest ? axes.next : axes.next - 1;
    return g.sqrt(g.mul(g.div(row, g.shift(g.mean(row, {axis}), 1e-30)), col));
  }

  // 4 / pi atan2(y, x) for x of at least 0. Half of an angle has the tangent t / (1 + sqrt(1 + t^2)), taken twice, and
  // the series of atan is exact to float32 for what is left, at most tan(pi / 8).
  static Value angle(UpdateGraph& g, Value y, Value x) {
    const Value length = g.sqrt(g.add(g.square(x), g.square(y)));
    const Value half = g.div(y, g.max(g.add(length, x), g.number(1e-37)));
    const Value t = g.div(half, g.shift(g.sqrt(g.shift(g.square(half), 1)), 1)), tt = g.square(t);
    Value series = g.number(-1.0 / 15);
    for (const double n : {13.0, -11.0, 9.0, -7.0, 5.0, -3.0, 1.0}) series = g.shift(g.mul(series, tt), 1 / n);
    return g.scale(g.mul(series, t), 4 * 4 / std::numbers::pi);
  }

  void estimate(UpdateGraph& g) const {
    const Value d = g.state("d"), none = g.number(0), length = g.reduced_sum("s");
    const Value numerator = g.mul(g.reduced_sum("distance"), g.scalar("share"));
    const Value counts = g.max(g.cast(g.greater(d, g.number(d0_)), LH_F32), g.cast(g.greater(numerator, none), LH_F32));
    const Value sum = g.add(g.scale(g.state("d_numerator"), beta3_), g.where(counts, numerator, none));
    Value d_hat = g.where(g.greater(length, none), g.div(sum, length), d);
    // As a sum: a factor that is off by its own rounding would add up over the steps.
    if (limiter_) d_hat = g.min(d_hat, g.add(d, g.scale(d, std::pow(2, 0.25) - 1)));
    Value next = g.max(d, g.scale(d_hat, d_coef_));
    if (last_ != 0) next = g.where(g.less(g.step(), g.number(last_)), next, d);
    g.set("d_numerator", sum);
    g.set("d", next);
  }

  std::vector<double> betas_;
  double beta3_;
  std::optional<double> eps_;
  double weight_decay_, d0_, d_coef_;
  bool limiter_;
  double last_, c_factor_;
  bool factored_, bias_correction_, stable_;
};

}  // namespace

constinit const lh_optimizer prodigy_plus_schedulefree =
    lora_host::optimizer<ProdigyScheduleFree>("prodigy_plus_schedulefree", options, names, 1, 1);

}  // namespace optim
