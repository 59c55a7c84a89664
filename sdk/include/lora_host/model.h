/* model.h - "lh.model/1": a model architecture, described as graphs.
 *
 * Roles and their named inputs and outputs (images and latents are [N, H, W, C]):
 *   denoiser     latents, text [B, L, D], pooled [B, P], timestep f32 [B]; optional guidance f32 [B], size_ids f32 [B,
 * 6]
 *                -> output, like latents
 *   conditioner  <encoder>.input_ids i32 [B, L] -> text, pooled; any further outputs are for inspection
 *   vae.encode   image in [-1, 1] -> moments (mean | log-variance on the channels), latent_mean in model space
 *   vae.decode   latents in model space -> image
 * Sizes given to build: batch; height, width (of the latents, or of the image for vae.encode); text_length (denoiser);
 * <encoder>.length (conditioner, for each encoder that is there). A denoiser whose recipe has skip-layer guidance is
 * also built with the list `skip_layers` (LH_ATTR_I64_LIST): block numbers whose blocks pass their inputs on.
 */
#ifndef LORA_HOST_MODEL_H
#define LORA_HOST_MODEL_H

#include "lora_host/host.h"

#define LH_MODEL_FACTORY "lh.model/1"

typedef struct lh_model {
  uint32_t struct_size;
  const char* id;
  /* YAML: the files that make up a checkpoint, their key prefixes and key maps (docs/plugin-guide.md). Static. */
  const char* checkpoint;
  /* 0..100: how sure the plugin is that the host's weights are its own. [setup] */
  int32_t (*probe)(const lh_host*);
  /* Reads dimensions from weight shapes. [setup] */
  lh_status (*create)(const lh_host*, void** self);
  void (*destroy)(void* self); /* [setup] */
  /* YAML: objective, timestep law, tokenizers, sampling defaults, LoRA targets. Lives until destroy. [setup] */
  const char* (*recipe)(void* self);
  const char* (*role)(void* self, uint32_t index); /* NULL ends the list [setup] */
  lh_status (*build)(void* self, lh_graph*, const char* role, const lh_attr* sizes, uint32_t n_sizes); /* [build] */
} lh_model;

#endif
