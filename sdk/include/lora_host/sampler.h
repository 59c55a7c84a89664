/* sampler.h - "lh.sampler/1": an integrator of the denoising equation, described as a graph.
 *
 * The host makes the sigmas (they belong to the model's recipe), evaluates the model at sigma and runs the stage graph.
 * Inputs of a stage: x and model_out (like the latents), sigma and sigma_next f32 [1]; carried tensors by name (zero at
 * the first step). Outputs: x, and each carried tensor. With more than one stage the model is evaluated again at (x,
 * stage_sigma) before each following stage.
 */
#ifndef LORA_HOST_SAMPLER_H
#define LORA_HOST_SAMPLER_H

#include "lora_host/host.h"

#define LH_SAMPLER_FACTORY "lh.sampler/1"

typedef struct lh_sampler {
  uint32_t struct_size;
  const char* id;
  const char* objective;      /* "flow" or "epsilon": what model_out is */
  uint32_t stages;            /* model evaluations in one step */
  const char* const* carried; /* names, NULL-terminated */
  lh_status (*build_stage)(lh_graph*, uint32_t stage, const lh_desc* latents); /* [build] */
} lh_sampler;

#endif
