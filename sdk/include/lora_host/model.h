/* model.h - "lh.model/1": a model architecture, described as graphs.
 *
 * Roles and their named inputs and outputs; images and latents are [N, H, W, C]:
 *   denoiser     latents, and any further inputs by the model's own names: the recipe's `inputs` says of each where it
 *                comes from (docs/plugin-guide.md) -> output, like latents
 *   conditioner  for each text encoder of the recipe: <encoder>.input_ids i32 [B, L] and, with `mask: true`,
 *                <encoder>.attention_mask i32 [B, L] (1 = a token is there) -> outputs that the recipe binds to
 *                inputs of the denoiser; any further ones are for inspection
 *   vae.encode   image [N, H, W, 3] in [-1, 1] -> posterior f32 [N, h, w, 2C]: mean | standard deviation, in model
 *                space (after scale, shift, patchification, statistics); for inspection also moments (mean |
 *                log-variance as the autoencoder gives them) and latent_mean
 *   vae.decode   latents in model space -> image
 * Sizes given to build, all at least 1:
 *   denoiser     batch; height and width of the latents; <input>_length for every input from the conditioner of rank 3
 *                or more, such as text_length. Where the recipe has skip-layer guidance the role is also built with the
 *                list skip_layers (LH_ATTR_I64_LIST): block numbers whose blocks pass their inputs on
 *   conditioner  batch; <encoder>.length for each encoder that is there, and <encoder>.drop, the tokens of the template
 *                to leave out, where its tokenizer has `drop`
 *   vae.encode   batch; height and width of the image
 *   vae.decode   batch; height and width of the latents
 */
#ifndef LORA_HOST_MODEL_H
#define LORA_HOST_MODEL_H

#include "lora_host/host.h"

#define LH_MODEL_FACTORY "lh.model/1"

/* Every field is required. */
typedef struct lh_model {
  uint32_t struct_size;
  const char* id;
  /* YAML: the files that make up a checkpoint, their key prefixes and key maps (docs/plugin-guide.md). Static. */
  const char* checkpoint;
  /* 0..100: how sure the plugin is that these weights are its own; or 0 and fail(LH_E_MODEL, "what they are instead").
   * [object] */
  int32_t (*probe)(const lh_model_ctx*);
  /* Reads dimensions from weight shapes. The lh_model_ctx lives until destroy has returned. [object] */
  lh_status (*create)(const lh_model_ctx*, void** self);
  void (*destroy)(void* self); /* [object] */
  /* YAML: objective, inputs, tokenizers, timestep law, sampling, LoRA targets. Lives until destroy. [object] */
  const char* (*recipe)(void* self);
  const char* (*role)(void* self, uint32_t index); /* NULL ends the list [object] */
  /* Gets the lh_model_ctx that `self` was created with. [object] */
  lh_status (*build)(void* self, const lh_model_ctx*, lh_graph*, const char* role, const lh_attr* sizes,
                     uint32_t n_sizes);
} lh_model;

#endif
