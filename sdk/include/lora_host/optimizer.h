/* optimizer.h - "lh.optimizer/1": an update rule, described as a graph over one parameter tensor.
 *
 * Inputs that build_update may ask for: p (parameter), g (gradient after clipping), lr f32 [1], step f32 [1] (from 1),
 * and each declared state by name. Outputs: p and every state. All are f32 of the parameter's shape; the host owns,
 * saves and restores states, which start at zero.
 */
#ifndef LORA_HOST_OPTIMIZER_H
#define LORA_HOST_OPTIMIZER_H

#include "lora_host/host.h"

#define LH_OPTIMIZER_FACTORY "lh.optimizer/1"

/* Every field but `options` is required. */
typedef struct lh_optimizer {
  uint32_t struct_size;
  const char* id;
  /* Names of `optimizer_params` the rule understands, NULL-terminated or NULL; the host refuses anything else. */
  const char* const* options;
  /* options: the user's values as f64 (numbers; flags are 0 or 1) or f64 lists. [object] */
  lh_status (*create)(const lh_host*, const lh_attr* options, uint32_t n_options, void** self);
  void (*destroy)(void* self);                                                /* [object] */
  const char* (*state)(void* self, uint32_t index);                           /* names; NULL ends the list [object] */
  lh_status (*build_update)(void* self, lh_graph*, const lh_desc* parameter); /* [object] */
} lh_optimizer;

#endif
