// Guidance: the model's outputs with the prompt (c), with the negative prompt (u) and with some blocks left out (s) as
// one.
//   classifier-free (Ho and Salimans 2022)                    u + scale (c - u)
//   skip-layer, after it, as diffusers and Stability have it  + scale (c - s)    while start < step / steps < end
// Guidance adds to the norm of what it leads to, and with it to contrast. What takes that back, on the result g:
//   by patches (sample.do_cfg_norm)                           g |c| / |g|, patch by patch
//   limited (sample.renorm_cfg)                               g min(1, limit |c| / |g|)
//   rescaled (Lin et al. 2024, eq. 15 and 16)                 share g std(c) / std(g) + (1 - share) g
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
  bool by_patches = false;
  double limit = 0;  // 0: none
  double rescale = 0;
  double until = 1;  // the model is asked without the negative prompt when this share of the noise is gone
  std::optional<SkipLayerGuidance> skip_layers;
};

// The recipe's, with what the user said over it. Throws lh::Error(Code::config) for what the model does not have.
Guidance guidance_of(const SampleConfig& config, const Recipe& recipe);

bool active(const SkipLayerGuidance& guidance, int64_t step, int64_t steps);
// The share of the way from noise to image that lies behind a level: 1 - sigma of flow models, for others that of the
// training timesteps. Less than 1 wherever a model is asked.
double noise_gone(const Recipe& recipe, double sigma, double time);
// out = u + scale (c - u)
HostTensor classifier_free(const HostTensor& with, const HostTensor& without, double scale);
// The result of guidance, [1, H, W, C] or [1, T, H, W, C], made smaller. patch: places of height and width in one.
void take_back_norm(HostTensor& out, const HostTensor& with, const Guidance& guidance, int64_t patch);
// out += scale (c - s)
void add_skip_layer(HostTensor& out, const HostTensor& with, const HostTensor& skipped, double scale);

}  // namespace lh
