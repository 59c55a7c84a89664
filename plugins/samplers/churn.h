// Stochastic churn (Karras et al. 2022, algorithm 2, lines 4 to 6): before a step, noise takes x up to a larger sigma,
// and the step begins there.
//   gamma = min(s_churn / steps, sqrt(2) - 1) where s_tmin <= sigma <= s_tmax, else 0
//   sigma_hat = (1 + gamma) sigma,   x_hat = x + s_noise sqrt(sigma_hat^2 - sigma^2) noise
#pragma once

#include "samplers.h"

namespace samplers {

// s_churn, s_tmin, s_tmax and s_noise, the end of the list behind them.
extern const lh_option churn_options[];

// A method over steps that begin at sigma_hat: where there is churn, a stage in front of its own adds the noise.
class ChurnedSampler : public lora_host::Sampler {
 public:
  explicit ChurnedSampler(const Options& options);
  uint32_t stages() const final { return own_stages() + shift(); }
  Names scalars() const final;
  Numbers scalar_values(const Step& step, uint32_t stage) const final;
  double stage_sigma(const Step& step, uint32_t stage) const final;
  void build(Graph& g, uint32_t stage, const Dims& latents) const final;

 protected:
  // begin: the sigma that the step begins at, with the churn.
  virtual uint32_t own_stages() const { return 1; }
  virtual Names own_scalars() const = 0;
  virtual Numbers own_values(const Step& step, uint32_t stage, double begin) const = 0;
  virtual double own_sigma(const Step& step, uint32_t stage, double begin) const = 0;  // of stages after the first
  virtual void build_own(Graph& g, uint32_t stage, const Dims& latents) const = 0;

 private:
  uint32_t shift() const { return churn_ > 0 ? 1 : 0; }
  double begin(const Step& step) const;
  double churn_, lowest_, highest_, noise_;
};

}  // namespace samplers
