// The parts of the model: its dimensions, and one function for each graph that the host asks for. What the roles'
// graphs take and give is in docs/roles.md.
#pragma once

#include "lora_host/lora_host.hpp"

namespace tiny_dit {

// All of it is read from the shapes of weights: a toy checkpoint and a large one take the same way.
struct Denoiser {
  int64_t channels = 0;  // of the latents
  int64_t hidden = 0;    // width of an image token
  int64_t text = 0;      // width of a text row
  int64_t time = 0;      // width of the sinusoids of the time
  int64_t head = 0;      // width of an attention head
  int64_t blocks = 0;
};
struct TextEncoder {
  int64_t width = 0;   // of a row
  int64_t places = 0;  // most tokens of a text
};
struct Autoencoder {
  int64_t channels = 0;  // of the latents
  int64_t levels = 0;    // each halves height and width
};

constexpr int64_t patch = 2;  // latents of 2 x 2 places are one image token

// Throw lora_host::Failure where a tensor is missing or has another shape than those before it ask for.
Denoiser read_denoiser(const lora_host::Weights& weights);
TextEncoder read_text_encoder(const lora_host::Weights& weights);
Autoencoder read_autoencoder(const lora_host::Weights& weights);

// Role denoiser: latents, text, text_lengths, time -> output.
void build_denoiser(lora_host::Graph& g, const Denoiser& dims, const lora_host::Sizes& sizes);

// Role conditioner: words.input_ids, words.attention_mask -> text, text_mask. strength: a factor of the text.
void build_text_encoder(lora_host::Graph& g, const TextEncoder& dims, double strength, const lora_host::Sizes& sizes);

// Role vae.encode: image -> posterior, moments, latent_mean. Role vae.decode: latents -> image.
void build_encoder(lora_host::Graph& g, const Autoencoder& dims, const lora_host::Sizes& sizes);
void build_decoder(lora_host::Graph& g, const Autoencoder& dims, const lora_host::Sizes& sizes);

}  // namespace tiny_dit
