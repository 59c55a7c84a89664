// A second part of the loss of a training step, for places that masks hide: what the model said before it was trained.
// It is the mean square (with the loss l1 the mean absolute value) between what the model says with adapters and what
// it says without them, weighted by place.
//
// The step is two passes one after another: the model without adapters, forward only, whose output the second is held
// against, and the step that was there before. They are one graph (joined_passes.h).
#pragma once

#include "compile/compile.h"

namespace lh {

// The further input of such a step, float32 [B, H, W, 1].
inline constexpr const char* prior_weight = "prior.loss_weight";

// The loss with that part, before it is differentiated: it is held against an input.
Value add_prior_loss(Graph& graph, Value loss, const std::string& kind);
// That input is what `base` says, the denoiser as it is, forward only.
void put_prior_in_front(TrainGraph& step, const Graph& base);

}  // namespace lh
