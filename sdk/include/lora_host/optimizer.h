/* optimizer.h - "lh.optimizer/2": an update rule, described as graphs.
 *
 * The host sorts the trained tensors into groups (those of the denoiser, those of a text encoder; by role where the
 * user asks for it). A group has one learning rate and its own `self`. A step of a group:
 *
 *   pass 0 of every tensor  ->  reductions over all of them  ->  between 0  ->  pass 1 of every tensor  -> ...
 *
 * A pass is a graph for one tensor. What it gives as `sum.<x>` or `max.<x>` is reduced over all elements of all tensors
 * of the group, in a fixed order, and later graphs of the step have the result. `between` is a graph over the group's
 * numbers. All of it is planned before training and recorded with the step: nothing waits for the host. A rule without
 * reductions has one pass and no `between`; one that first works out numbers has a pass 0 that gives nothing.
 *
 * The host puts tensors of one shape, role and group side by side and updates them with one graph, each op of it in its
 * form for [N, ...] (docs/plugin-guide.md lists the ops that have one). With LH_OPTIMIZER_ELEMENTWISE it gives all
 * tensors of a group as one flat tensor, role LH_ROLE_OTHER.
 *
 * States belong to the host, which saves and restores them. A new value is there from the next graph of the step on.
 * docs/roles.md is made of the lines with a mark.
 *
 * @role build_pass: a pass of a step over one tensor
 * @input p: f32, the parameter's shape
 * @input g: f32, the same: the gradient, after clipping
 * @input lr: f32 [1]: the learning rate of this step, of the group
 * @input step: f32 [1]: its number, from 1
 * @input <state>: each state of the tensor or of the group, as `state` says
 * @input sum.<x>, max.<x>: f32 [1]: a reduction of an earlier pass
 * @input <scalar>: f32 [1]: what an earlier `between` gave
 * @output p: the new parameter
 * @output <state>: a state's new value; one that no pass gives keeps its value
 * @output sum.<x>, max.<x>: f32, any shape: to be reduced
 *
 * @role build_between: the numbers of a group, after a pass; optional
 * @input lr, step, <state>, sum.<x>, max.<x>, <scalar>: as above; states of the group alone
 * @output <state>: the new value of a state of the group
 * @output <scalar>: f32 [1], any other name: for later graphs of the step
 *
 * @role build_evaluation: the weights that are saved and sampled with, of one tensor; optional
 * @input p, step, <state>: as above
 * @output p: f32, the parameter's shape; training goes on from the old one
 */
#ifndef LORA_HOST_OPTIMIZER_H
#define LORA_HOST_OPTIMIZER_H

#include "lora_host/host.h"
#include "lora_host/options.h"

#define LH_OPTIMIZER_FACTORY "lh.optimizer/2"

/* What a trained tensor is to its module. */
#define LH_ROLE_OTHER 0
#define LH_ROLE_DOWN 1   /* of LoRA: [rank, in], of a convolution [rank, in, KH, KW]; lora_down, lora_A */
#define LH_ROLE_UP 2     /* of LoRA: [out, rank], of a convolution [out, rank, 1, 1]; lora_up, lora_B */
#define LH_ROLE_WEIGHT 3 /* the module's own weight, trained itself */

/* A trained tensor. Texts live until the callback returns. */
typedef struct lh_parameter {
  uint32_t struct_size;
  int32_t role; /* LH_ROLE_* */
  const char *name, *module;
  int64_t rank; /* of its adapter; 0 = none */
  uint32_t group;
  lh_desc desc; /* f32, the shape that files have */
} lh_parameter;

/* Who has a state. */
#define LH_STATE_OF_TENSOR 0
#define LH_STATE_OF_GROUP 1 /* one for all tensors of a group */

/* What a state is before the first step. */
#define LH_INITIAL_ZERO 0
#define LH_INITIAL_CONSTANT 1  /* `value` */
#define LH_INITIAL_PARAMETER 2 /* a copy of p: f32, the parameter's shape */

/* What a state means to other rules. When a run goes on with another optimizer, a state with the same name, shape, type
 * and meaning is kept; one whose meaning is its rule's own begins anew. */
#define LH_MEANING_OWN 0
#define LH_MEANING_AVERAGE 1        /* running average of the gradient */
#define LH_MEANING_SQUARE_AVERAGE 2 /* running average of its square */

/* Frozen. */
typedef struct lh_state {
  const char* name; /* NULL ends the list; lives as long as `self` */
  int32_t scope;    /* LH_STATE_OF_* */
  int32_t initial;  /* LH_INITIAL_* */
  int32_t meaning;  /* LH_MEANING_* */
  double value;
  lh_desc desc; /* f32, bf16, i32 or u8 */
} lh_state;

#define LH_OPTIMIZER_ELEMENTWISE 1u /* an element of a tensor meets no other one but through reductions */

/* Every field but `names`, `options`, `build_between`, `build_evaluation` and `learning_rate` is required. */
typedef struct lh_optimizer {
  uint32_t struct_size;
  const char* id;
  const char* const* names; /* other names that users know it by, NULL-terminated or NULL */
  uint32_t revision;        /* of what the states mean: a saved state of another one begins anew */
  const lh_option* options; /* what `optimizer_params` may hold; NULL: nothing */
  /* options: those that have a value, in the order of the list (options.h). [object] */
  lh_status (*create)(const lh_host*, const lh_attr* options, uint32_t n_options, void** self);
  void (*destroy)(void* self);    /* [object] */
  uint32_t (*flags)(void* self);  /* LH_OPTIMIZER_* [object] */
  uint32_t (*passes)(void* self); /* of a step, 1 to 8 [object] */
  /* State number `index` of the parameter; those of the group are the same for each of its tensors. [object] */
  lh_status (*state)(void* self, const lh_parameter*, uint32_t index, lh_state* out);
  lh_status (*build_pass)(void* self, lh_graph*, uint32_t pass, const lh_parameter*); /* [object] */
  /* A graph without outputs is none. [object] */
  lh_status (*build_between)(void* self, lh_graph*, uint32_t pass);
  lh_status (*build_evaluation)(void* self, lh_graph*, const lh_parameter*);
  /* What users give as `lr` to a rule that is far from the usual 1e-4, such as 1 where it finds its own rate: a run
   * that names none has this one, and one far below it is spoken of. 0 = the usual. Not in every struct of 0.3: LH_HAS.
   */
  double learning_rate;
} lh_optimizer;

#endif
