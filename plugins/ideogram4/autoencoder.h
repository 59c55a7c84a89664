// What stands between Ideogram 4's latents and the autoencoder of Flux.2, whose patches of 2x2 they are: the order of
// the numbers of a patch, and statistics of the model's own. Those in the autoencoder's file are Flux.2's.
#pragma once

#include "lora_host/lora_host.hpp"

namespace ideogram4 {

inline constexpr int64_t latent_channels = 128;

// Throws where a tensor is missing or does not fit.
void check_autoencoder(const lora_host::Weights& weights);

void build_encode(lora_host::Graph& g, const lora_host::Sizes& sizes);
void build_decode(lora_host::Graph& g, const lora_host::Sizes& sizes);

}  // namespace ideogram4
