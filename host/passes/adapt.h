// Pass: puts adapters on the linear and convolution layers whose module names match.
//   a pair   linear   y = x W^T + b      becomes   y = x W^T + b + scale (x A^T) B^T      (the op `lora`)
//            conv2d   y = conv(x, W) + b becomes   y = conv(x, W) + b + scale conv(conv(x, A), B)
//            The A of a convolution has its kernel, stride and padding, B is 1x1 (LoCon, Yeh et al. 2023).
//   a pair whose change is counted from its start A_0, B_0 (AdapterForm::from_start): B A - B_0 A_0 as the pair of
//   twice
//            the rank [A; A - A_0], [B - B_0, B_0], in which nothing of a small change is lost in half precision
//   others   what the rule of an adapter plugin builds (adapter_rule.h)
// Convolutions in groups and in three dimensions have none.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "passes/adapter_rule.h"

namespace lh {

struct AdapterSpec {
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;  // of the rank activations; rates need the graph input "step" (added here)
  uint64_t seed = 0;
  double rank_dropout = 0, module_dropout = 0;
  const AdapterRule* rule = nullptr;  // none: a pair with the scale alpha / rank
  double strength = 1;                // times what the adapter changes about a layer
};

struct AdaptedTensor {
  Value value;      // the parameter "<module>.<key>", f32
  std::string key;  // "lora_down.weight": in files too
  TensorRole role = TensorRole::other;
  InitialValue initial = {};
};

// A layer with an adapter. Of a plain one the tensors are down [rank, in] and up [out, rank], of a convolution
// [rank, in, KH, KW] and [out, rank, 1, 1].
struct AdaptedModule {
  std::string name;  // "blocks.0.attn.qkv"
  std::vector<AdaptedTensor> tensors;
  int64_t rank = 0;  // 0: it has none
  double alpha = 0;  // of files, 0: they have none
  const AdapterRule* rule = nullptr;
  AdapterLayer layer = {};
  AdapterForm form = {};
  Value value(std::string_view key) const;  // of the tensor with this key; none where there is no such tensor
};

// "blocks.0.attn.qkv" of the parameter "blocks.0.attn.qkv.weight"; empty for one that ends otherwise.
std::string module_of(const std::string& weight);
// "encoder" of "encoder:layers.0.q_proj", empty for names of the denoiser.
std::string component_of(const std::string& name);
// Keys of the tensors of a plain adapter, and names of its parameters.
inline constexpr const char* down_key = "lora_down.weight";
inline constexpr const char* up_key = "lora_up.weight";
std::string down_name(const std::string& module);
std::string up_name(const std::string& module);
// The parameter that keeps what a trained one began with, where the change is counted from there.
std::string start_name(const std::string& parameter);

// `select` gives the adapter for a module, or nullptr. Modules come back in graph order, each once.
// `training` puts dropout in.
std::vector<AdaptedModule> adapt(Graph& graph, const std::function<const AdapterSpec*(const std::string&)>& select,
                                 bool training);

}  // namespace lh
