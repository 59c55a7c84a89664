// A step that trains a slider: a LoRA that moves the target class towards the positive prompt at strength 1 and towards
// the negative one at -1 (ai-toolkit's concept slider). With p, n and u for what the model says without adapters about
// the same noisy latents and the positive prompt, the negative one and the target class:
//   t(s) = u + s strength (p - n), then shifted and scaled to the mean and the deviation of u, over the whole batch
//   loss = sum over s = 1, -1 of 2/3 mse(what it says about the class with adapters at s, t(s))
// With an anchor class, a is what the model says about it without adapters: for each s there is 1/3 anchor_strength
// mse(what it says with adapters at s, a) besides. The loss that is shown is half of it, the mean of both directions.
//
// The step is three or four passes forward and two or four passes back (joined_passes.h), whose sums these are.
#pragma once

#include <string>

#include "compile/compile.h"

namespace lh {

// The further inputs of such a step: those of the denoiser that depend on the prompt, by the front of their names. The
// class's own have none.
inline constexpr const char* positive_front = "positive.";
inline constexpr const char* negative_front = "negative.";
inline constexpr const char* anchor_front = "anchor.";
// float32 [B], as "loss_weight" is: the weight of each sample.
inline constexpr const char* anchor_weight = "anchor.loss_weight";
inline constexpr double class_share = 2.0 / 3, anchor_share = 1.0 / 3;

// step, mirrored: training passes of the same size with the loss mse, weighted, with adapters at 1 and at -1. base: the
// denoiser as it is, forward only.
void slide(TrainGraph& step, const Graph& base, const TrainGraph& mirrored, const Recipe& recipe,
           const SliderConfig& slider);

}  // namespace lh
