// Pass: puts LoRA adapters on the linear and convolution layers whose module names match.
//   linear   y = x W^T + b      becomes   y = x W^T + b + (alpha / rank) (x A^T) B^T      (the op `lora`)
//   conv2d   y = conv(x, W) + b becomes   y = conv(x, W) + b + (alpha / rank) conv(conv(x, A), B)
// The A of a convolution has its kernel, stride and padding, B is 1x1 (LoCon, Yeh et al. 2023). Convolutions in groups
// and in three dimensions have none.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace lh {

struct AdapterSpec {
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;  // of the rank activations; needs the graph input "step" (added here)
  uint64_t seed = 0;
};

struct AdaptedModule {
  std::string name;  // "blocks.0.attn.qkv"
  Value down, up;    // f32 [rank, in], [out, rank]; of a convolution [rank, in, KH, KW], [out, rank, 1, 1]
  double alpha = 0;
};

// "blocks.0.attn.qkv" of the parameter "blocks.0.attn.qkv.weight"; empty for one that ends otherwise.
std::string module_of(const std::string& weight);
// "encoder" of "encoder:layers.0.q_proj", empty for names of the denoiser.
std::string component_of(const std::string& name);
// Parameter names of a module's adapter.
std::string down_name(const std::string& module);
std::string up_name(const std::string& module);

// `select` gives the adapter for a module, or nullptr. Modules come back in graph order, each once.
// `training` puts dropout in.
std::vector<AdaptedModule> adapt(Graph& graph, const std::function<const AdapterSpec*(const std::string&)>& select,
                                 bool training);

}  // namespace lh
