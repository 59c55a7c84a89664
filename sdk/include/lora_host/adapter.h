/* adapter.h - "lh.adapter/1": what a linear or convolution layer becomes when it is trained, described over ops.
 *
 * For each layer an adapter lists its trained tensors and takes one of three forms:
 *
 *   LH_FORM_PAIR    y = layer(x) + scale up(down(x)): plain LoRA. The first two tensors are down [rank, in] and up
 *                   [out, rank], of a convolution [rank, in, kh, kw] and [out, rank, 1, 1]. The host builds it with its
 *                   fastest op, dropouts included; nothing else is asked of the adapter. With `from_start` its change
 *                   is counted from the first values: y = layer(x) + scale (up(down(x)) - up_0(down_0(x))).
 *   LH_FORM_OUTPUT  build_output gives the layer's new output, from its input and its output.
 *   LH_FORM_WEIGHT  build_weight gives the layer's new weight, from its weight, in float32. The same graph is run to
 *                   merge. Where the host computes in half precision it adds the output of the change of the weight, so
 *                   that a change smaller than a step of the weight's type is not lost.
 *
 * Gradients, memory, saving, resuming and recomputation are the host's. Files hold each tensor under its name behind
 * the module's, in the spelling of the format, and `alpha`. docs/roles.md is made of the lines with a mark.
 *
 * @role build_output: a layer's output with its adapter
 * @input x: LH_FLOAT: what the layer is given, [..., in], of a convolution [N, H, W, in]
 * @input y: LH_FLOAT: what the layer gives, bias included
 * @input <tensor>: f32, its own shape: each trained tensor, by its name
 * @input keep.rank: f32, any shape: 1, or 0 where the user's `rank_dropout` drops, each element by itself; another draw
 * in each step and use of the layer. To be asked for only where the layer's rate is above 0
 * @input keep.element: f32, any shape: the same for `dropout`
 * @output y: like y
 * @role build_weight: a layer's weight with its adapter
 * @input weight: f32, [out, in], of a convolution [out, in, kh, kw]: the base weight, which is not trained
 * @input <tensor>: f32, its own shape: each trained tensor, by its name
 * @input keep.rank: as in build_output
 * @output weight: like weight
 * @role build_initial: how the tensors begin that the base weight decides (LH_INIT_GRAPH); run once, before training
 * @input weight: f32, as in build_weight
 * @output <tensor>: f32: each such tensor
 */
#ifndef LORA_HOST_ADAPTER_H
#define LORA_HOST_ADAPTER_H

#include "lora_host/host.h"
#include "lora_host/optimizer.h" /* LH_ROLE_* */
#include "lora_host/options.h"

#define LH_ADAPTER_FACTORY "lh.adapter/1"

#define LH_LAYER_LINEAR 0
#define LH_LAYER_CONV2D 1

/* A layer of the model with what the user set for it. Valid during the call. */
typedef struct lh_layer {
  uint32_t struct_size;
  int32_t type;          /* LH_LAYER_* */
  const char* module;    /* "double_blocks.0.img_attn.qkv", without its component */
  const char* component; /* "denoiser", or a text encoder: "clip_l" */
  int64_t in, out;       /* features, or channels */
  int64_t kernel[2];     /* height, width; 1, 1 of a linear, as are the next */
  int64_t stride;
  int64_t pad[4];               /* top, left, bottom, right */
  int64_t groups;               /* 1: convolutions in groups are left alone */
  int64_t rank;                 /* network.linear, or what the user set for this module */
  double alpha;                 /* network.linear_alpha, likewise */
  double dropout, rank_dropout; /* rates in [0, 1); 0 in samples and merges */
} lh_layer;

#define LH_FORM_PAIR 0
#define LH_FORM_OUTPUT 1
#define LH_FORM_WEIGHT 2

/* What an adapter does with a layer; the host has set struct_size and zeroed the rest. */
typedef struct lh_adapter_form {
  uint32_t struct_size;
  int32_t form;         /* LH_FORM_* */
  double scale;         /* of LH_FORM_PAIR */
  int64_t rank;         /* what reports and metadata say; 0: it has none */
  double alpha;         /* "<module>.alpha" of files, which readers divide by the rank; 0: files have none */
  uint32_t leave_alone; /* 1: this layer gets no adapter */
  uint32_t from_start; /* 1, of LH_FORM_PAIR: the layer is unchanged by the values that the tensors begin with, whatever
                        * these are. The host keeps them; files have twice the rank, and apply to the base weight */
} lh_adapter_form;

#define LH_INIT_ZERO 0
#define LH_INIT_CONSTANT 1 /* `value` */
#define LH_INIT_UNIFORM 2  /* evenly in (-value, value) */
#define LH_INIT_NORMAL 3   /* with deviation `value` */
#define LH_INIT_GRAPH 4    /* what build_initial gives */
/* Of both tensors of a pair, from the base weight W [out, in ...]; the host chooses the signs.
 * LH_INIT_SINGULAR, W = U S V^T: up = U_r sqrt(S_r / scale), down = sqrt(S_r / scale) V_r^T, approached by `value`
 * rounds of subspace iteration, or computed to float32 where it is 0. LH_INIT_QR, W = Q R: up = Q_r, down = R_r. */
#define LH_INIT_SINGULAR 5
#define LH_INIT_QR 6

/* A trained tensor; the host has set struct_size and zeroed the rest. */
typedef struct lh_adapter_tensor {
  uint32_t struct_size;
  int32_t role;     /* LH_ROLE_* */
  const char* name; /* "lora_down.weight"; as long as self lives */
  lh_desc desc;     /* LH_F32 */
  int32_t initial;  /* LH_INIT_* */
  double value;
} lh_adapter_tensor;

/* Required are id, create, destroy, form and tensor; of the builds those that the forms and initial values need. */
typedef struct lh_adapter {
  uint32_t struct_size;
  const char* id;           /* the value of network.type */
  const lh_option* options; /* of network.network_kwargs; NULL: none */
  lh_status (*create)(const lh_host*, const lh_attr* options, uint32_t n_options, void** self);
  void (*destroy)(void* self);                                          /* [object] */
  lh_status (*form)(void* self, const lh_layer*, lh_adapter_form* out); /* [object] */
  /* Tensor number `index` of the layer; a name that stays NULL ends the list. [object] */
  lh_status (*tensor)(void* self, const lh_layer*, uint32_t index, lh_adapter_tensor* out);
  lh_status (*build_output)(void* self, lh_graph*, const lh_layer*, const lh_desc* x, const lh_desc* y); /* [object] */
  lh_status (*build_weight)(void* self, lh_graph*, const lh_layer*);                                     /* [object] */
  lh_status (*build_initial)(void* self, lh_graph*, const lh_layer*);                                    /* [object] */
} lh_adapter;

#endif
