// The vision tower of SigLIP (so400m) under its Hugging Face names: a picture [1, S, S, 3] in [-1, 1], which is how it
// has colours, -> states [1, n, h] of its n patches.
//
//   x = patches + positions;  then the layers of nn/clip.hpp, all places seeing all, heads of 72, tanh gelu, eps 1e-6;
//   states = norm(x)
//
// Depth, width, patches and places follow from the weights. The head that makes one vector of all is left out.
#pragma once

#include <algorithm>
#include <string>

#include "nn/clip.hpp"

namespace lora_host::nn {

inline constexpr ClipLayer siglip_layer = {.head_dim = 72, .activation = "tanh", .causal = false, .eps = 1e-6};

inline Value siglip_vision(Graph& g, Value picture, const std::string& prefix) {
  const Weights weights = g.weights();
  const std::string root = prefix + "vision_model.", embeddings = root + "embeddings.";
  const Dims patch = weights.require(embeddings + "patch_embedding.weight", {-1, 3, -1, -1});
  const int64_t places = weights.require(embeddings + "position_embedding.weight", {-1, patch[0]})[0];

  Value x = g.conv2d(picture, embeddings + "patch_embedding", patch[2]);
  const Dims grid = g.shape(x);  // [1, S / p, S / p, h]
  if (grid[1] * grid[2] != places)
    throw Failure(LH_E_INVALID, prefix + " sees " + std::to_string(places) + " patches of " + std::to_string(patch[2]) +
                                    " pixels, found " + std::to_string(grid[1] * grid[2]));
  x = g.add(g.reshape(x, {1, places, grid[3]}), g.param(embeddings + "position_embedding.weight"));
  const int64_t layers = weights.count(root + "encoder.layers.", ".layer_norm1.weight");
  for (int64_t i = 0; i < layers; ++i) x = clip_layer(g, x, root + "encoder.layers." + std::to_string(i), siglip_layer);
  return g.layer_norm(x, root + "post_layernorm", siglip_layer.eps);
}

// Throws when a tensor that siglip_vision() needs is missing or of another shape. Gives the width of its states.
inline int64_t check_siglip_vision(const Weights& weights, const std::string& prefix) {
  const std::string root = prefix + "vision_model.", embeddings = root + "embeddings.";
  const int64_t h = weights.require(embeddings + "patch_embedding.weight", {-1, 3, -1, -1})[0];
  if (h % siglip_layer.head_dim != 0)
    throw Failure(LH_E_MODEL, embeddings +
                                  "patch_embedding.weight: expected a multiple of 72 rows (heads of 72), found " +
                                  std::to_string(h));
  weights.require(embeddings + "patch_embedding.bias", {h});
  weights.require(embeddings + "position_embedding.weight", {-1, h});
  const int64_t layers = weights.count(root + "encoder.layers.", ".layer_norm1.weight");
  for (int64_t i = 0; i < std::max<int64_t>(layers, 1); ++i)
    check_clip_layer(weights, root + "encoder.layers." + std::to_string(i), h);
  for (const char* end : {"post_layernorm.weight", "post_layernorm.bias"}) weights.require(root + end, {h});
  return h;
}

}  // namespace lora_host::nn
