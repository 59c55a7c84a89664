// What a micro-batch is trained on: latents drawn from the posterior, noise, noise levels, captions with dropout, and
// what the denoiser is told besides. Every draw is a function of (seed, purpose, micro-step, place in the batch).
#pragma once

#include "train/prepare.h"

namespace lh {

class BatchMaker {
 public:
  explicit BatchMaker(Prepared& prepared) : p_(prepared), inputs_(prepared.model.recipe()) {}
  // Inputs for a batch whose step was built for `shape`.
  StepInputs make(const Batch& batch, const StepShape& shape, int64_t micro_step);

 private:
  // Noisy latents and target of one sample.
  NoiseLevel draw(const Sample& sample, uint64_t draw, uint32_t lane, std::span<float> noisy, std::span<float> target);
  const std::string& caption(const Sample& sample, uint64_t draw, uint32_t lane) const;
  Prepared& p_;
  DenoiserInputs inputs_;
};

}  // namespace lh
