// Guidance: the model's outputs with the prompt (c), with the negative prompt (u) and with some blocks left out (s) as
// one.
//   classifier-free (Ho and Salimans 2022)                    u + scale (c - u)
//   skip-layer, after it, as diffusers and Stability have it  + scale (c - s)    while start < step / steps < end
// Models that take a guidance number were distilled from such outputs: they are asked once.
#pragma once

#include <optional>

#include "config/config.h"
#include "core/tensor.h"
#include "plugin/recipe.h"

namespace lh {

struct Guidance {
  double scale = 1;              // of classifier-free guidance, or the number that the model takes
  bool classifier_free = false;  // the model is also asked with the negative prompt
  bool batched = false;          // both in one batch
  std::optional<SkipLayerGuidance> skip_layers;
};

// The recipe's, with what the user said over it. Throws lh::Error(Code::config) for what the model does not have.
Guidance guidance_of(const SampleConfig& config, const Recipe& recipe);

bool active(const SkipLayerGuidance& guidance, int64_t step, int64_t steps);
// out = u + scale (c - u)
HostTensor classifier_free(const HostTensor& with, const HostTensor& without, double scale);
// out += scale (c - s)
void add_skip_layer(HostTensor& out, const HostTensor& with, const HostTensor& skipped, double scale);

}  // namespace lh
