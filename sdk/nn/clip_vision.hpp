// The vision tower of CLIP under its Hugging Face names: a picture [1, S, S, 3] in [-1, 1] -> states [1, 1 + n, h] of
// its n patches, with that of the class in front of them.
//
//   x = norm([class, patches] + positions);  then the layers of nn/clip.hpp, all places seeing all
//
// Depth, width, patches and places follow from the weights; heads do not: of ViT-H they are 80 wide. The activation is
// erf gelu, as OpenCLIP's models have it.
#pragma once

#include <string>

#include "nn/clip.hpp"
#include "nn/clip_colours.hpp"

namespace lora_host::nn {

// As the last layer but one leaves them, before any final norm.
inline Value clip_vision(Graph& g, Value picture, const std::string& prefix, int64_t head_dim) {
  const Weights weights = g.weights();
  const std::string root = prefix + "vision_model.", embeddings = root + "embeddings.";
  const Dims patch = weights.require(embeddings + "patch_embedding.weight", {-1, 3, -1, -1});
  const int64_t h = patch[0], places = weights.require(embeddings + "position_embedding.weight").end()[-2];

  Value x = g.conv2d(clip_colours(g, picture), embeddings + "patch_embedding", patch[2]);
  const Dims grid = g.shape(x);  // [1, S / p, S / p, h]
  const int64_t patches = grid[1] * grid[2];
  if (patches + 1 != places)
    throw Failure(LH_E_INVALID, prefix + " sees " + std::to_string(places - 1) + " patches of " +
                                    std::to_string(patch[2]) + " pixels, found " + std::to_string(patches));
  Value token = g.reshape(g.param(embeddings + "class_embedding"), {1, 1, h});
  x = g.concat({token, g.reshape(x, {1, patches, h})}, 1);
  x = g.add(x, g.reshape(g.param(embeddings + "position_embedding.weight"), {1, places, h}));
  x = g.layer_norm(x, root + "pre_layrnorm", clip_eps);
  const int64_t layers = weights.count(root + "encoder.layers.", ".layer_norm1.weight");
  for (int64_t i = 0; i + 1 < layers; ++i)
    x = clip_layer(g, x, root + "encoder.layers." + std::to_string(i), {head_dim, "erf", false});
  return x;
}

// Throws when a tensor that clip_vision() needs is missing or of another shape. Gives the width of its states.
inline int64_t check_clip_vision(const Weights& weights, const std::string& prefix, int64_t head_dim) {
  const std::string root = prefix + "vision_model.", embeddings = root + "embeddings.";
  const Dims patch = weights.require(embeddings + "patch_embedding.weight", {-1, 3, -1, -1});
  const int64_t h = patch[0];
  if (h % head_dim != 0)
    throw Failure(LH_E_MODEL, embeddings + "patch_embedding.weight: expected a multiple of " +
                                  std::to_string(head_dim) + " rows (heads of " + std::to_string(head_dim) +
                                  "), found " + std::to_string(h));
  weights.require(embeddings + "class_embedding");
  weights.require(embeddings + "position_embedding.weight");
  for (const char* end : {"pre_layrnorm.weight", "pre_layrnorm.bias"}) weights.require(root + end, {h});
  const int64_t layers = weights.count(root + "encoder.layers.", ".layer_norm1.weight");
  if (layers < 2) throw Failure(LH_E_MODEL, "missing tensor " + root + "encoder.layers.1.layer_norm1.weight");
  for (int64_t i = 0; i + 1 < layers; ++i) check_clip_layer(weights, root + "encoder.layers." + std::to_string(i), h);
  return h;
}

}  // namespace lora_host::nn
