/* optimizer.h - "lh.optimizer/1": an update rule, described as a graph over one tensor of numbers that are trained.
 *
 * The host first offers all of a group's numbers as one flat tensor, [n], and updates them in a single pass where the
 * rule treats each number by itself; otherwise the graph is built for each tensor, with its own shape (Optimizers in
 * docs/plugin-guide.md). States belong to the host, which saves and restores them. docs/roles.md is made of the lines
 * with a mark.
 *
 * @role build_update: one step of one tensor
 * @input p: f32, the parameter's shape
 * @input g: f32, the same: the gradient, after clipping
 * @input lr: f32 [1]: the learning rate of this step
 * @input step: f32 [1]: its number, from 1
 * @input <state>: f32, the parameter's shape: each that `state` names; zero before the first step
 * @output p: the new parameter
 * @output <state>: each state's new value
 */
#ifndef LORA_HOST_OPTIMIZER_H
#define LORA_HOST_OPTIMIZER_H

#include "lora_host/host.h"
#include "lora_host/options.h"

#define LH_OPTIMIZER_FACTORY "lh.optimizer/1"

/* Every field but `options` is required. */
typedef struct lh_optimizer {
  uint32_t struct_size;
  const char* id;
  const lh_option* options; /* what `optimizer_params` may hold; NULL: nothing */
  /* options: those that have a value, in the order of the list (options.h). [object] */
  lh_status (*create)(const lh_host*, const lh_attr* options, uint32_t n_options, void** self);
  void (*destroy)(void* self);                                                /* [object] */
  const char* (*state)(void* self, uint32_t index);                           /* names; NULL ends the list [object] */
  lh_status (*build_update)(void* self, lh_graph*, const lh_desc* parameter); /* [object] */
} lh_optimizer;

#endif
