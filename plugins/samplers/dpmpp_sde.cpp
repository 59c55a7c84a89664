// DPM-Solver++(2S) with new noise (Lu et al. 2022, algorithm 1; k-diffusion, sample_dpmpp_sde and
// sample_dpmpp_2s_ancestral). A move from lambda to lambda'' (0 < part of the way) is
//   x'' = alpha'' / alpha e^-k x + alpha'' (1 - e^-k) m
// where an ancestral step of sigma / alpha goes down to e^-(lambda + k) and noise alpha'' up leads up again.
//   dpmpp_sde           stage 0  to lambda + r h, with m and a draw;   stage 1  from the begin to lambda' with a second
//                                draw and (1 - 1 / (2 r)) m + m_s / (2 r), m_s = denoised of the middle point
//   dpmpp_2s_ancestral  stage 0  half of the way down, no noise;       stage 1  all of it, with m_s and the step's draw
// A step that ends at sigma 0 gives m in stage 0 and has no stage 1.
#include <cmath>

#include "samplers.h"

namespace samplers {
namespace {

double ratio(const Step& step) { return step.sigma() / step.alpha(); }

struct Move {
  double of_x, of_denoised, of_noise;
};
// From a step's begin to `to`, where alpha is `alpha`, with new noise; sigmas over alpha.
Move move(const Step& step, double to, double alpha, double eta, double s_noise) {
  const auto [down, up] = ancestral(ratio(step), to, eta);
  const double rest = down / ratio(step);  // e^-k
  return {alpha / step.alpha() * rest, alpha * (1 - rest), alpha * up * s_noise};
}

// Both keep where the step began.
class SingleStep : public lora_host::Sampler {
 public:
  uint32_t stages() const override { return 2; }
  Names carried() const override { return {"x_begin", "denoised_begin"}; }
};

class DpmppSde : public SingleStep {
 public:
  explicit DpmppSde(const Options& options)
      : eta_(options.real("eta")), s_noise_(options.real("s_noise")), r_(options.real("r")) {}
  Names scalars() const override { return weights_of({"x", "denoised", "noise", "x_begin", "denoised_begin"}); }
  Numbers scalar_values(const Step& step, uint32_t stage) const override {
    const Step next = step.next();
    if (next.sigma() <= 0) return {0, 1, 0, 0, 0};
    if (stage == 0) {
      const double sigma = middle(step);
      const double alpha = step.alpha_at(sigma);
      const Move m = move(step, sigma / alpha, alpha, eta_, s_noise_);
      return {m.of_x, m.of_denoised, m.of_noise, 0, 0};
    }
    const Move m = move(step, ratio(next), next.alpha(), eta_, s_noise_);
    const double share = 1 / (2 * r_);
    return {0, share * m.of_denoised, m.of_noise, m.of_x, (1 - share) * m.of_denoised};
  }
  double stage_sigma(const Step& step, uint32_t stage) const override {
    if (stage == 0) return step.sigma();
    return step.next().sigma() > 0 ? middle(step) : 0;
  }
  void build(Graph& g, uint32_t stage, const Dims& latents) const override {
    Stage s(g, latents);
    if (stage == 0) {
      g.output("x", s.sum({"x", "denoised", "noise"}));
      g.output("x_begin", s.tensor("x"));
      g.output("denoised_begin", s.tensor("denoised"));
    } else {
      g.output("x", s.sum({"x_begin", "denoised_begin", "denoised", "noise"}));
    }
  }

 private:
  double middle(const Step& step) const {
    const double lambda = step.lambda();
    return step.sigma_at_lambda(lambda + r_ * (step.next().lambda() - lambda));
  }
  double eta_, s_noise_, r_;
};

class Dpmpp2SAncestral : public SingleStep {
 public:
  explicit Dpmpp2SAncestral(const Options& options) : eta_(options.real("eta")), s_noise_(options.real("s_noise")) {}
  Names scalars() const override { return weights_of({"x", "denoised", "noise", "x_begin"}); }
  // Discrete models only: sigma over alpha is sigma.
  Numbers scalar_values(const Step& step, uint32_t stage) const override {
    const auto [down, up] = ancestral(step.sigma(), step.next().sigma(), eta_);
    if (down <= 0) return {0, 1, s_noise_ * up, 0};
    if (stage == 0) {
      const double rest = std::sqrt(down / step.sigma());
      return {rest, 1 - rest, 0, 0};
    }
    const double rest = down / step.sigma();
    return {0, 1 - rest, s_noise_ * up, rest};
  }
  double stage_sigma(const Step& step, uint32_t stage) const override {
    if (stage == 0) return step.sigma();
    return std::sqrt(step.sigma() * ancestral(step.sigma(), step.next().sigma(), eta_).down);
  }
  void build(Graph& g, uint32_t stage, const Dims& latents) const override {
    Stage s(g, latents);
    if (stage == 0) {
      g.output("x", s.sum({"x", "denoised"}));
      g.output("x_begin", s.tensor("x"));
    } else {
      g.output("x", s.sum({"x_begin", "denoised", "noise"}));
    }
  }
  Names carried() const override { return {"x_begin"}; }

 private:
  double eta_, s_noise_;
};

constexpr const char* sde_names[] = {"dpmpp_sde_gpu", "k_dpmpp_sde", "DPMSolverSDEScheduler", nullptr};
constexpr const char* two_s_names[] = {"dpmpp_2s_a", "k_dpmpp_2s_a", nullptr};
constexpr lh_option sde_options[] = {
    eta_option("1"), s_noise_option,
    option::real("r", "0.5", option::between(0, 1), "Where the middle point lies between both lambdas."), option::end};
constexpr lh_option two_s_options[] = {option::real("eta", "1", option::within(0, 1), "New noise of a step; 0: none."),
                                       s_noise_option, option::end};

}  // namespace

constinit const lh_sampler dpmpp_sde = lora_host::sampler<DpmppSde>({.id = "dpmpp_sde",
                                                                     .aliases = sde_names,
                                                                     .objectives = all_models,
                                                                     .space = LH_SPACE_LOG_SNR,
                                                                     .options = sde_options});
constinit const lh_sampler dpmpp_2s_ancestral = lora_host::sampler<Dpmpp2SAncestral>({.id = "dpmpp_2s_ancestral",
                                                                                      .aliases = two_s_names,
                                                                                      .objectives = discrete_models,
                                                                                      .space = LH_SPACE_SIGMA,
                                                                                      .options = two_s_options});

}  // namespace samplers
