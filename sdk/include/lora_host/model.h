/* model.h - "lh.model/1": a model architecture, described as graphs.
 *
 * Below, what each role's graph may ask for and has to give. docs/roles.md is made of these lines; a line without a
 * mark goes on with the one above it. LH_FLOAT is the type that the host computes in. Images and latents have their
 * channels last.
 *
 * @role denoiser: what the model says of noisy latents
 * @input latents: LH_FLOAT [B, h, w, C], with an axis of time [B, t, h, w, C]: alpha x + sigma noise, in model space
 * @input <name>: any further ones, by names of the model's own; the recipe's `inputs` says what each is given (sources)
 * @input sound: LH_FLOAT [B, rows, channels]: noisy latents of the sound, of the same sigma; of models with sound
 * @output output: like latents: what the recipe's `objective` asks for
 * @output sound_output: like sound, where there is that
 * @size batch: samples
 * @size height, width: of the latents
 * @size time: of the latents, where they have that axis
 * @size sound: rows of the sound; of stills and clips without a sound track it is not there, nor is the input
 * @size <input>: 1, of an input that is `optional` and given; else it is not there
 * @size <input>_length: rows of an input from the conditioner of rank 3 or more, such as text_length: of the longest
 *   text of the batch, rounded up
 * @size skip_layers: a list (LH_ATTR_I64_LIST): blocks that pass their input on; of the graph for skip_layer_guidance
 *
 * @role conditioner: rows of text, or whatever the denoiser is told of a prompt
 * @input <encoder>.input_ids: i32 [B, L]: the tokens, for each entry of the recipe's `tokenizers` that has weights
 * @input <encoder>.attention_mask: i32 [B, L]: 1 = a token, 0 = a pad, where the tokenizer has `mask: true`
 * @input <picture>: LH_FLOAT [1, H, W, 3] in [-1, 1], for all texts: of the recipe's `pictures`, those that there are
 * @output <name>: any number, of any type and shape that begins with B. Those that the recipe's `inputs` name go to the
 *   denoiser, such as a text for the sound beside that for the picture; further ones are for tests
 * @output <mask>: i32 [B, L]: which rows of another output are there; those come first
 * @size batch: texts
 * @size <encoder>.length: tokens of a text, pads included
 * @size <encoder>.drop: tokens in front, of the template, whose rows are left out; where the tokenizer has `drop`
 * @size <encoder>.rows: rows of each text, where the tokenizer has `rows`: input_ids are [B rows, L], a text's together
 * @size <picture>_height, <picture>_width: of a picture that is given, in pixels
 * @size <picture>_at: the row of its first place among the tokens, where its encoder has a tokenizer
 *
 * @role vae.encode: images to latents; neither this nor vae.decode of a model of which latents are the picture itself
 * @input image: LH_FLOAT [B, H, W, 3] in [-1, 1], where latents have an axis of time [B, T, H, W, 3]: a still image is
 *   one frame, and T is 1 + n (t - 1) with the recipe's n frames of a place
 * @output posterior: f32 [B, h, w, 2C], with time [B, t, h, w, 2C]: mean, then standard deviation, in model space:
 *   after scale, shift, statistics and patches
 * @output moments: mean, then log-variance, as the network gives them: for tests
 * @output latent_mean: the mean in model space: for tests
 * @size batch: images
 * @size height, width: of the image
 * @size time: frames of the image, where latents have that axis
 *
 * @role vae.decode: latents to images
 * @input latents: LH_FLOAT [B, h, w, C], with an axis of time [B, t, h, w, C], in model space
 * @output image: [B, H, W, 3], with time [B, T, H, W, 3], in [-1, 1] but for overshoot
 * @size batch: images
 * @size height, width: of the latents
 * @size time: of the latents, where they have that axis
 *
 * @role sound.encode: sound to latents; of models with sound, whose recipe has a section `sound`
 * @input sound: f32 [B, samples, 2] in [-1, 1], `rate` samples a second of two channels
 * @output posterior: f32 [B, rows, 2 channels]: mean, then standard deviation, in model space; the recipe says how many
 *   `channels`, and how many `rows` a second
 * @output moments: mean, then log-variance, as the network gives them: for tests
 * @output latent_mean: the mean in model space: for tests
 * @size batch: sounds
 * @size samples: of a channel: those of whole rows
 *
 * @role sound.decode: latents to sound
 * @input latents: LH_FLOAT [B, rows, channels], in model space
 * @output sound: f32 [B, samples, 2] in [-1, 1], `output_rate` samples a second; as many as the network makes of them
 * @size batch: sounds
 * @size rows: of the latents
 *
 * Sources, what the recipe's `inputs` can name for an input of the denoiser:
 *
 * @source conditioner.<output>: an output of the conditioner for the sample's prompt, of its type and shape; of rank 3
 *   or more: padded with zeros to one length. `mask: conditioner.<mask>` names the output that says which rows are
 *   there: only those are kept. `round: n`: lengths are rounded up to a multiple of n
 * @source mask.<input>: i32 [B, L]: 1 = a row of that input is there; an input from the conditioner that has a mask
 * @source lengths.<input>: i32 [B]: how many rows of it are there
 * @source time: f32 [B]: sigma for flow models, the training timestep for others. `per: token`: f32 [B, tokens]
 * @source time.end: like `time`, that at which a step of sampling ends; in training, which takes no step, `time`
 * @source sigma: f32 [B]: share of the noise. `per: token` likewise
 * @source log_snr: f32 [B]: log(alpha^2 / sigma^2). `per: token` likewise
 * @source guidance: f32 [B]: strength, for models that were distilled from guidance; a recipe's `none: -1` means none
 * @source sizes: f32 [B, n]: `values` of original_height, original_width, crop_top, crop_left, height, width, numbers
 * @source image.<key>: a further image of the sample, LH_FLOAT, cut like the sample's own: the file of the same name in
 *   the folder that `datasets[].images` has for the key, or of `sample.images`. `as: latents` [B, h, w, C]: the mean of
 *   the VAE's posterior; `as: pixels` [B, H, W, 3] in [-1, 1]; `as: mask` [B, h, w, 1]: how white it is, 0 to 1
 * @source first_frame.<key>: LH_FLOAT [B, t, h, w, C], the mean of the latents of a clip that begins with the sample's
 *   first frame and is grey, which is 0, behind it. In samples the frame is the image of `sample.images.<key>`.
 *   `as: start` [B, 1, h, w, C]: of the frame alone, zeros of samples without one; nothing is learnt of it
 * @source given.<key>: f32 [B]: 1 of samples that have that frame, 0 of others
 * @source inpaint.<what>: of a model that paints a part of an image anew, LH_FLOAT. `inpaint.mask` [B, h, w, n], n the
 *   pixels of a place, row by row: 1 where it is to paint, 0 elsewhere. `inpaint.image` [B, h, w, C]: a draw of the
 *   latents of the image with 0, which is grey, where it is to paint. In training the image is the sample's own
 * @source constant: f32 [B]: the number `value`
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
