// What a micro-batch is trained on: latents drawn from the posterior, noise, noise levels, captions as their rules make
// them, and what the denoiser is told besides. Every draw is a function of (seed, purpose, micro-step, place in the
// batch).
#pragma once

#include "train/prepare.h"

namespace lh {

class BatchMaker {
 public:
  explicit BatchMaker(Prepared& prepared) : p_(prepared), inputs_(prepared.model.recipe()) {}
  // Inputs for a batch whose step was built for `shape`.
  StepInputs make(const Batch& batch, const StepShape& shape, int64_t micro_step);
  // The same batch is asked for soon: what is cached of it is read ahead.
  void will_need(const Batch& batch, int64_t micro_step);
  // Inputs for one sample that is not trained on: noise and noise level number `level` of this image, the same whenever
  // they are asked for. Nothing is drawn of its caption.
  StepInputs validation(const Sample& sample, const StepShape& shape, int64_t level);

 private:
  // One sample, and what it is used with.
  struct Use {
    const Sample& sample;
    const ImageCut cut;
    const ImageCut own;  // the same, with a mask where the model paints by one
    const std::string caption;
    const std::optional<std::string> preserved;  // the prompt for which the model is kept as it was
    uint64_t seed, draw;
    uint32_t lane;
  };
  std::vector<Use> uses_of(const Batch& batch, int64_t micro_step) const;
  StepInputs make(const std::vector<Use>& uses, const StepShape& shape, int32_t step);
  void add_preserved(const std::vector<Use>& uses, const Sizes& sizes, NamedTensors& tensors);
  void add_sound(const std::vector<Use>& uses, const std::vector<InputRow>& rows, const std::vector<float>& weights,
                 int64_t count, NamedTensors& tensors);
  void add_slider(const std::vector<Use>& uses, const Sizes& sizes, NamedTensors& tensors);
  // Noisy latents and target of one sample.
  NoiseLevel draw(const Use& use, const Sizes& sizes, std::span<float> noisy, std::span<float> target);
  // Appends how much each place [t, h, w] of a sample counts by its mask, and in the loss: there not at all in a first
  // frame that the model is shown, for which the others make up.
  void add_places(const Use& use, size_t count, std::vector<float>& by_mask, std::vector<float>& in_loss);
  Prepared& p_;
  DenoiserInputs inputs_;
};

}  // namespace lh
