/* sampler.h - "lh.sampler/2": an integrator of the denoising equation, described as graphs.
 *
 * A schedule makes the noise levels (schedule.h). The host evaluates the model, with guidance, and runs the sampler's
 * graph for each stage of each step. At level i the latents are x = alpha[i] x0 + sigma[i] noise. `space` says what x
 * is:
 *
 *   LH_SPACE_SIGMA    x moves on straight lines in sigma, dx/dsigma = (x - x0) / sigma, and ends at sigma 0. For models
 *                     of discrete timesteps alpha is 1 (x0 + sigma noise), for flow models it is 1 - sigma.
 *   LH_SPACE_ALPHA    x is in the model's own scale. The end may keep the noise of the first training timestep, where
 *                     the model's schedule says so; alpha may be 0 at the beginning.
 *   LH_SPACE_LOG_SNR  the same for integrators in log(alpha / sigma): alpha is above 0 at every level, and only the
 * last one may have sigma 0.
 *
 * Levels are not evenly spaced in anything: they are the schedule's.
 *
 * A step runs the stages 0, 1, ... For each the host asks `stage_sigma` where the model is to be seen: 0 ends the step
 * there, so steps may have different numbers of stages, and LH_STAGE_WITHOUT_MODEL runs the stage without an
 * evaluation, as one that adds noise before the model is asked: such a stage is given x, noise, carried tensors and
 * scalars only. docs/roles.md is made of the lines with a mark.
 *
 * @role build_stage: the latents advance by one stage of a step
 * @input x: f32, like the latents
 * @input model_out: like x: what the model said of x, after guidance
 * @input denoised: like x: the x0 that this means
 * @input epsilon: like x: the noise that it means
 * @input derivative: like x: dx/dsigma; LH_SPACE_SIGMA only
 * @input uncond_model_out: like x: what the model said without the prompt; without classifier-free guidance model_out
 * @input uncond_denoised: like x: the x0 that this means
 * @input uncond_epsilon: like x: the noise that it means
 * @input uncond_derivative: like x: dx/dsigma; LH_SPACE_SIGMA only
 * @input noise: like x: a normal draw of this stage of this step, independent of those of all others
 * @input time: f32 [1]: the timestep input that the model was given: sigma of flow models, a training timestep of
 * others
 * @input <carried>: like x: each tensor that `carried` names; zero at the first stage of a run
 * @input <scalar>: f32 [1]: each number that `scalar` names
 * @output x: the new latents
 * @output <carried>: a carried tensor's new value; one that is no output of a stage keeps its value
 */
#ifndef LORA_HOST_SAMPLER_H
#define LORA_HOST_SAMPLER_H

#include "lora_host/host.h"
#include "lora_host/options.h"

#define LH_SAMPLER_FACTORY "lh.sampler/2"

#define LH_SPACE_SIGMA 0
#define LH_SPACE_ALPHA 1
#define LH_SPACE_LOG_SNR 2

#define LH_STAGE_WITHOUT_MODEL (-1.0) /* given by stage_sigma */

/* The noise levels of a run: step i begins at level i and ends at level i + 1. Valid during the call. */
typedef struct lh_levels {
  uint32_t struct_size;
  uint32_t steps;
  const double* alpha;   /* steps + 1 */
  const double* sigma;   /* steps + 1, falling */
  const double* time;    /* steps + 1: the model's timestep input */
  const char* objective; /* of the model: "flow", "epsilon", "v_prediction" */
  int32_t space;         /* LH_SPACE_*: the sampler's own */
} lh_levels;

/* Every field but `aliases`, `options` and stage_sigma is required. `self` is what create gives: it holds the options
 * and does not change, so that every function of it is pure. */
typedef struct lh_sampler {
  uint32_t struct_size;
  const char* id;
  const char* const* aliases;    /* what other programs call it; NULL-terminated or NULL */
  const char* const* objectives; /* models it is for: "flow", "epsilon", "v_prediction"; NULL-terminated */
  int32_t space;                 /* LH_SPACE_* */
  const lh_option* options;      /* of sample.sampler_params; NULL: none */
  lh_status (*create)(const lh_host*, const lh_attr* options, uint32_t n_options, void** self); /* [any-thread] */
  void (*destroy)(void* self);                                                                  /* [any-thread] */
  uint32_t (*stages)(void* self);                     /* most stages of one step, 1 to 64. [any-thread] */
  const char* (*carried)(void* self, uint32_t index); /* tensors kept until the run ends; NULL ends. [any-thread] */
  const char* (*scalar)(void* self, uint32_t index);  /* numbers that change with step or stage. [any-thread] */
  /* The values of all scalars at a stage of a step; `out` has room for them. [any-thread] */
  lh_status (*scalar_values)(void* self, const lh_levels*, uint32_t step, uint32_t stage, double* out);
  /* Sigma at which a stage sees the model, in the sampler's space; 0: the step ends before this stage;
   * LH_STAGE_WITHOUT_MODEL. NULL: every stage sees it at the step's own level. [any-thread] */
  lh_status (*stage_sigma)(void* self, const lh_levels*, uint32_t step, uint32_t stage, double* out);
  lh_status (*build_stage)(void* self, lh_graph*, uint32_t stage, const lh_desc* latents); /* [any-thread] */
} lh_sampler;

#endif
