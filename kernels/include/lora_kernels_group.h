/* Layers with adapters as one operation: small products of one launch fill a device that none of them fills alone. Of
 * layers that read one x, such as q, k and v of an attention, that is all; of any layers, the adapters' gradients. */
#ifndef LORA_KERNELS_GROUP_H
#define LORA_KERNELS_GROUP_H

#include "lora_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LK_LORA_GROUP_MAX 4
/* Layers with adapters that read one x: as lk_lora_forward on each. All layers have the same x, type and rows. */
typedef struct lk_lora_group_forward_params {
  int64_t struct_size LK_SIZE_OF(lk_lora_group_forward_params);
  const lk_lora_forward_params* layers;
  int32_t count; /* 1 to LK_LORA_GROUP_MAX */
  /* optional, in lines, of two layers of one width: act(y of the first) * y of the second, as lk_gated_activation of
   * what is stored. On a GPU aligned as in lk_lora_forward_params. */
  lk_tensor activated;
  int32_t activation; /* LK_SILU, LK_GELU_ERF or LK_GELU_TANH */
} lk_lora_group_forward_params;
LK_API lk_status lk_lora_group_forward(lk_context*, const lk_lora_group_forward_params*);
/* As lk_lora_backward on each, but for dx: dx = added + the sum of all layers' dy weight + ds down, rounded once. The
 * layers have neither dx nor added. */
typedef struct lk_lora_group_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_lora_group_backward_params);
  const lk_lora_backward_params* layers;
  int32_t count;
  lk_tensor dx, added; /* optional */
} lk_lora_group_backward_params;
LK_API lk_status lk_lora_group_backward(lk_context*, const lk_lora_group_backward_params*);

#define LK_LORA_GRADIENTS_MAX 16
/* What lk_lora_backward makes of ds and s, from the s of lk_lora_forward and the ds of lk_lora_backward:
 * ddown = ds^T x ;  dup = scale * dy^T s. */
typedef struct lk_lora_gradients_layer {
  int64_t struct_size LK_SIZE_OF(lk_lora_gradients_layer);
  lk_tensor x, dy, s, ds; /* [..., in], [..., out], [..., r], [..., r] */
  float scale;
  int32_t accumulate;   /* 1: ddown and dup are added to */
  lk_tensor ddown, dup; /* outputs [r, in] and [out, r] */
} lk_lora_gradients_layer;
/* Of layers that may differ in everything. */
typedef struct lk_lora_gradients_params {
  int64_t struct_size LK_SIZE_OF(lk_lora_gradients_params);
  const lk_lora_gradients_layer* layers;
  int32_t count; /* 1 to LK_LORA_GRADIENTS_MAX */
} lk_lora_gradients_params;
LK_API lk_status lk_lora_gradients(lk_context*, const lk_lora_gradients_params*);

#ifdef __cplusplus
}
#endif

#endif
