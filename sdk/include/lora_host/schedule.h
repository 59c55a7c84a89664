/* schedule.h - "lh.schedule/1": where the noise levels of a sampling run lie.
 *
 * A schedule is told what the host knows of the model and answers with a falling list of levels, the end among them.
 * The host turns them into the space of the sampler (sampler.h): levels are not evenly spaced, and their number need
 * not be the one that was asked for.
 *
 * Sigma means sigma / alpha of x = alpha x0 + sigma noise for models of discrete timesteps ("epsilon", "v_prediction"),
 * so from 0 to any number; for flow models, whose alpha is 1 - sigma, it is sigma, from 0 to 1.
 */
#ifndef LORA_HOST_SCHEDULE_H
#define LORA_HOST_SCHEDULE_H

#include "lora_host/host.h"
#include "lora_host/options.h"
#include "lora_host/sampler.h"

#define LH_SCHEDULE_FACTORY "lh.schedule/1"

#define LH_SPACING_LEADING 0
#define LH_SPACING_TRAILING 1

/* What the host knows of the model and the run. */
typedef struct lh_schedule_facts {
  uint32_t struct_size;
  uint32_t steps;              /* that were asked for */
  const char* objective;       /* "flow", "epsilon", "v_prediction" */
  int32_t space;               /* LH_SPACE_*: of the sampler */
  uint32_t timesteps;          /* that the model was trained on: N */
  const double* trained_sigma; /* [N], rising: sigma of timestep i; of flow models that of time (i + 1) / N, shifted.
                                  The last is infinite where it keeps no signal and the space lets alpha be 0 */
  double sigma_min, sigma_max; /* the ends of trained_sigma, always finite */
  int64_t tokens;              /* image tokens: latent places / multiple^2 */
  /* of flow models: t -> shift t / (1 + (shift - 1) t), or with exp(mu) in the place of shift where `dynamic` is 1 */
  int32_t dynamic;
  double shift, mu;
  int32_t shift_twice; /* 1: times run from 1 to the shifted 1/1000 before they are shifted */
  /* of models of discrete timesteps, from the recipe */
  int32_t spacing; /* LH_SPACING_* */
  int64_t offset;  /* added to the timesteps of leading spacing */
} lh_schedule_facts;

/* The answer. The host fills struct_size, room, both lists with NaN, and start with 0. */
typedef struct lh_schedule_levels {
  uint32_t struct_size;
  uint32_t room;  /* of both lists; no less than 2 steps + 64 and timesteps + 64 */
  uint32_t count; /* levels that were written: one more than steps of the run */
  double* sigma;  /* falling; the last is 0, or where the run ends */
  double* time;   /* the model's timestep input; NaN: found by the host, between trained ones where log(sigma) lies */
  double start;   /* the run begins with this times a normal draw, of discrete models in LH_SPACE_SIGMA; 0: the first
                     sigma, or sqrt(sigma^2 + 1) where the model's own spacing is leading */
} lh_schedule_levels;

/* Every field but `aliases` and `options` is required. `self` holds the options and does not change. */
typedef struct lh_schedule {
  uint32_t struct_size;
  const char* id;
  const char* const* aliases;    /* what other programs call it; NULL-terminated or NULL */
  const char* const* objectives; /* models it is for; NULL-terminated */
  const lh_option* options;      /* of sample.scheduler_params; NULL: none */
  lh_status (*create)(const lh_host*, const lh_attr* options, uint32_t n_options, void** self); /* [any-thread] */
  void (*destroy)(void* self);                                                                  /* [any-thread] */
  /* LH_E_SETTING with fail(): the run cannot be had, such as more steps than there are timesteps. [any-thread] */
  lh_status (*levels)(void* self, const lh_schedule_facts*, lh_schedule_levels* out);
} lh_schedule;

#endif
