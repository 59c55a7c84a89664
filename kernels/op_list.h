// Every operation of the library with its parameter struct: the operation table, the public functions and the
// CPU backend's declarations are all made from this list.
#pragma once

#define LK_FOR_EACH_OP(X)                                           \
  X(linear, lk_linear_params)                                       \
  X(linear_backward, lk_linear_backward_params)                     \
  X(lora_forward, lk_lora_forward_params)                           \
  X(lora_backward, lk_lora_backward_params)                         \
  X(matmul, lk_matmul_params)                                       \
  X(conv2d, lk_conv2d_params)                                       \
  X(conv2d_backward, lk_conv2d_backward_params)                     \
  X(conv3d, lk_conv3d_params)                                       \
  X(conv3d_backward, lk_conv3d_backward_params)                     \
  X(attention, lk_attention_params)                                 \
  X(attention_backward, lk_attention_backward_params)               \
  X(softmax, lk_softmax_params)                                     \
  X(softmax_backward, lk_softmax_backward_params)                   \
  X(rope, lk_rope_params)                                           \
  X(timestep_embedding, lk_timestep_embedding_params)               \
  X(layer_norm, lk_layer_norm_params)                               \
  X(layer_norm_backward, lk_layer_norm_backward_params)             \
  X(rms_norm, lk_rms_norm_params)                                   \
  X(rms_norm_backward, lk_rms_norm_backward_params)                 \
  X(modulated_norm, lk_modulated_norm_params)                       \
  X(modulated_norm_backward, lk_modulated_norm_backward_params)     \
  X(group_norm, lk_group_norm_params)                               \
  X(group_norm_backward, lk_group_norm_backward_params)             \
  X(unary, lk_unary_params)                                         \
  X(unary_backward, lk_unary_backward_params)                       \
  X(binary, lk_binary_params)                                       \
  X(gated_residual, lk_gated_residual_params)                       \
  X(gated_residual_backward, lk_gated_residual_backward_params)     \
  X(gated_activation, lk_gated_activation_params)                   \
  X(gated_activation_backward, lk_gated_activation_backward_params) \
  X(where, lk_where_params)                                         \
  X(cast, lk_cast_params)                                           \
  X(permute, lk_permute_params)                                     \
  X(copy_block, lk_copy_block_params)                               \
  X(fill, lk_fill_params)                                           \
  X(expand, lk_expand_params)                                       \
  X(embedding, lk_embedding_params)                                 \
  X(gather, lk_gather_params)                                       \
  X(gather_backward, lk_gather_backward_params)                     \
  X(top_k, lk_top_k_params)                                         \
  X(top_k_backward, lk_top_k_backward_params)                       \
  X(find_first, lk_find_first_params)                               \
  X(upsample_nearest2x, lk_upsample_nearest2x_params)               \
  X(upsample_nearest2x_backward, lk_upsample_nearest2x_params)      \
  X(reduce_sum, lk_reduce_sum_params)                               \
  X(loss, lk_loss_params)                                           \
  X(loss_backward, lk_loss_backward_params)                         \
  X(accumulate, lk_accumulate_params)                               \
  X(clip_grad_norm, lk_clip_grad_norm_params)                       \
  X(loss_scale_update, lk_loss_scale_update_params)                 \
  X(adamw_update, lk_adamw_update_params)                           \
  X(dropout_mask, lk_dropout_mask_params)                           \
  X(random_normal, lk_random_normal_params)
