/* sampler.h - "lh.sampler/1": an integrator of the denoising equation, described as graphs.
 *
 * The host makes the noise levels (they belong to the model's recipe), evaluates the model, with guidance, and runs the
 * sampler's graph for each stage of each step. At level i the latents are x = alpha[i] x0 + sigma[i] noise. `space`
 * says what x is and where the levels lie:
 *
 *   LH_SPACE_SIGMA    x moves on straight lines in sigma, dx/dsigma = (x - x0) / sigma, and ends at sigma 0. For models
 *                     of discrete timesteps alpha is 1 (x0 + sigma noise), for flow models it is 1 - sigma.
 *   LH_SPACE_ALPHA    x is in the model's own scale. The end may keep the noise of the first training timestep, where
 *                     the model's schedule says so; alpha may be 0 at the beginning.
 *   LH_SPACE_LOG_SNR  the same for integrators in log(alpha / sigma): alpha is above 0 at every level, the levels are
 *                     evenly spaced with the end among them, and that has sigma 0.
 *
 * Stage 0 sees the model at the step's own level. Before each following stage the model is evaluated again, at the new
 * x and the sigma that `stage_sigma` gives. docs/roles.md is made of the lines with a mark.
 *
 * @role build_stage: the latents advance by one stage of a step
 * @input x: f32, like the latents
 * @input model_out: like x: what the model said of x, after guidance
 * @input denoised: like x: the x0 that this means
 * @input epsilon: like x: the noise that it means
 * @input derivative: like x: dx/dsigma; LH_SPACE_SIGMA only
 * @input noise: like x: a new normal draw for each step
 * @input <carried>: like x: each carried tensor; zero at the first step
 * @input <scalar>: f32 [1]: each name in `scalars`
 * @output x: the new latents
 * @output <carried>: a carried tensor's new value; one that is no output of a stage keeps its value
 */
#ifndef LORA_HOST_SAMPLER_H
#define LORA_HOST_SAMPLER_H

#include "lora_host/host.h"

#define LH_SAMPLER_FACTORY "lh.sampler/1"

#define LH_SPACE_SIGMA 0
#define LH_SPACE_ALPHA 1
#define LH_SPACE_LOG_SNR 2

/* The noise levels of a run: step i begins at level i and ends at level i + 1; all stay until the run ends. */
typedef struct lh_levels {
  uint32_t struct_size;
  uint32_t steps;
  const double* alpha; /* steps + 1 */
  const double* sigma; /* steps + 1, falling */
} lh_levels;

/* Required are id, objectives, stages and build_stage; scalar_values with scalars, stage_sigma with further stages. */
typedef struct lh_sampler {
  uint32_t struct_size;
  const char* id;
  const char* const* objectives; /* models it is for: "flow", "epsilon", "v_prediction"; NULL-terminated */
  int32_t space;                 /* LH_SPACE_* */
  uint32_t stages;               /* most model evaluations in one step */
  const char* const* carried;    /* tensors kept from stage to stage and from step to step; NULL-terminated or NULL */
  const char* const* scalars;    /* numbers that change with the step; NULL-terminated or NULL */
  /* The values of `scalars` at a stage of a step; `out` has room for all. Pure. [any-thread] */
  void (*scalar_values)(const lh_levels*, uint32_t step, uint32_t stage, double* out);
  /* Sigma at which a stage after the first sees the model; 0: the step ends without it. NULL where there is one stage.
   * Pure. [any-thread] */
  double (*stage_sigma)(const lh_levels*, uint32_t step, uint32_t stage);
  lh_status (*build_stage)(lh_graph*, uint32_t stage, const lh_desc* latents); /* [any-thread] */
} lh_sampler;

#endif
