// A second loss of a training step, which keeps what the model said before it was trained: for other prompts than those
// that are learned, the mean square between what it says with adapters and without them.
//
// The step is three passes one after another (joined_passes.h): the model without adapters, forward only, whose output
// is the target of the second; the model with adapters, forward and backward; and the step that was there before.
#pragma once

#include <string>

#include "compile/compile.h"

namespace lh {

// The further inputs of such a step: those of the denoiser that depend on the prompt under another name, and the weight
// of each sample (float32 [B]).
std::string preserved_name(const std::string& input);
inline constexpr const char* preserved_weight = "preserved.loss_weight";

// base: the denoiser as it is, forward only. kept: a training pass of the same size with the loss mse, weighted.
void preserve(TrainGraph& step, const Graph& base, const TrainGraph& kept, const Recipe& recipe);

}  // namespace lh
