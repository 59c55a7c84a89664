// UniPC, predicting x0 (Zhao et al. 2023, algorithms 1 and 2; the recursions as in diffusers' UniPCMultistepScheduler).
// A step from level s to t with h = lambda_t - lambda_s, z = -h, m_i = denoised at level s - i, r_i = (lambda_{s-i} -
// lambda_s) / h, D_i = (m_i - m_0) / r_i and B = z (bh1) or e^z - 1 (bh2):
//   x_t = sigma_t / sigma_s x_s - alpha_t (e^z - 1) m_0 - alpha_t B sum over i of rho_i D_i
// The predictor of order p has D_1 .. D_{p-1}. The corrector does the step before once more from where that began, with
// the m of its end as one more D of r = 1, without another evaluation. rho solves sum over i of r_i^(k-1) rho_i = b_k,
// b_k = k! phi_k / B. Of second order rho is 1/2 for the predictor, of first order 1/2 for the corrector.
#include <algorithm>
#include <cmath>
#include <utility>

#include "samplers.h"

namespace samplers {
namespace {

// Solves rows of [a | b] by elimination with pivots; there are no more than three.
Numbers solved(std::vector<Numbers> rows) {
  const size_t n = rows.size();
  for (size_t i = 0; i < n; ++i) {
    const auto larger = [&](const Numbers& a, const Numbers& b) { return std::abs(a[i]) < std::abs(b[i]); };
    std::iter_swap(rows.begin() + static_cast<std::ptrdiff_t>(i),
                   std::max_element(rows.begin() + static_cast<std::ptrdiff_t>(i), rows.end(), larger));
    for (size_t k = 0; k < n; ++k) {
      const double factor = k == i ? 0 : rows[k][i] / rows[i][i];
      for (size_t j = i; j <= n; ++j) rows[k][j] -= factor * rows[i][j];
    }
  }
  Numbers out;
  for (size_t i = 0; i < n; ++i) out.push_back(rows[i][n] / rows[i][i]);
  return out;
}

// A step in numbers.
struct Sum {
  double of_x;
  Numbers of_m;       // of m_0, m_1, ...
  double of_end = 0;  // of the m at its end, for the corrector
};

class UniPc : public lora_host::Sampler {
 public:
  explicit UniPc(const Options& options)
      : order_(static_cast<uint32_t>(options.integer("order"))), bh1_(options.text("solver_type") == "bh1") {}

  Names carried() const override {
    Names names = history("denoised", order_);
    names.emplace_back("x_begin");
    return names;
  }
  Names scalars() const override {
    Names names = weights_of(corrected());
    for (const std::string& name : predicted()) names.push_back("to_" + name);
    return names;
  }
  Numbers scalar_values(const Step& step, uint32_t /*stage*/) const override {
    Numbers numbers{1, 0, 0};  // of x, x_begin, denoised and its history: the first step has nothing to correct
    if (!step.first()) {
      const Sum corrector = whole_step(step.previous(), order_at(step.previous()), true);
      numbers = {0, corrector.of_x, corrector.of_end};
      numbers.insert(numbers.end(), corrector.of_m.begin(), corrector.of_m.end());
    }
    numbers.resize(3 + order_);
    const Sum predictor = whole_step(step, order_at(step), false);
    numbers.push_back(predictor.of_x);
    numbers.insert(numbers.end(), predictor.of_m.begin(), predictor.of_m.end());
    numbers.resize(3 + order_ + 1 + order_);
    return numbers;
  }
  void build(Graph& g, uint32_t /*stage*/, const Dims& latents) const override {
    Stage stage(g, latents);
    Value begin = stage.sum(corrected());
    Value x = g.mul(begin, stage.number("to_x_begin"));
    for (const std::string& name : predicted())
      if (name != "x_begin") x = g.add(x, g.mul(stage.tensor(name), stage.number("to_" + name)));
    g.output("x", x);
    g.output("x_begin", begin);
    stage.keep("denoised", order_);
  }

 private:
  Names corrected() const {
    Names names{"x", "x_begin", "denoised"};
    for (const std::string& name : history("denoised", order_)) names.push_back(name);
    return names;
  }
  Names predicted() const {
    Names names{"x_begin", "denoised"};
    for (const std::string& name : history("denoised", order_ - 1)) names.push_back(name);
    return names;
  }
  // Low at both ends of the run.
  uint32_t order_at(const Step& step) const {
    return std::min({order_, step.count() - step.index(), step.index() + 1});
  }
  Sum whole_step(const Step& step, uint32_t order, bool correct) const;

  uint32_t order_;
  bool bh1_;
};

Sum UniPc::whole_step(const Step& step, uint32_t order, bool correct) const {
  const Step end = step.next();
  if (end.sigma() <= 0) return {0, {1}};
  const double h = end.lambda() - step.lambda(), z = -h, phi1 = std::expm1(z), b = bh1_ ? z : phi1;
  Numbers r;  // of D_1 .. and of the end's D, which the predictor has not
  for (uint32_t i = 1; i < order; ++i) r.push_back((step.previous(i).lambda() - step.lambda()) / h);
  if (correct) r.push_back(1);
  Numbers rho;
  if (order == (correct ? 1u : 2u)) {
    rho = {0.5};
  } else {
    std::vector<Numbers> rows;
    double phi = phi1 / z - 1, factorial = 1;
    for (size_t k = 0; k < r.size(); ++k) {
      Numbers row;
      for (const double ratio : r) row.push_back(std::pow(ratio, static_cast<double>(k)));
      row.push_back(phi * factorial / b);
      rows.push_back(row);
      factorial *= static_cast<double>(k) + 2;
      phi = phi / z - 1 / factorial;
    }
    rho = solved(std::move(rows));
  }
  Sum sum{end.sigma() / step.sigma(), Numbers(order), 0};
  sum.of_m[0] = -end.alpha() * phi1;
  for (size_t i = 0; i < r.size(); ++i) {
    const double weight = -end.alpha() * b * rho[i] / r[i];
    (correct && i + 1 == r.size() ? sum.of_end : sum.of_m[i + 1]) += weight;
    sum.of_m[0] -= weight;
  }
  return sum;
}

constexpr const char* solvers[] = {"bh1", "bh2", nullptr};
constexpr const char* names[] = {"unipc", "uni_pc_bh2", "UniPCMultistepScheduler", nullptr};
constexpr lh_option options[] = {
    option::integer("order", "2", option::within(1, 3), "Order of the predictor; that of the corrector is one higher."),
    option::choice("solver_type", "bh2", solvers, "B(h): h (bh1) or e^h - 1 (bh2)."), option::end};

}  // namespace

constinit const lh_sampler uni_pc = lora_host::sampler<UniPc>(
    {.id = "uni_pc", .aliases = names, .objectives = all_models, .space = LH_SPACE_LOG_SNR, .options = options});

}  // namespace samplers
