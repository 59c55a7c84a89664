// What the adapt pass asks of an adapter: how a layer becomes a trained one. plugin/adapter.h answers with a plugin.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace lh {

// What a trained tensor is to its module: optimizers treat them differently.
enum class TensorRole { other, down, up, weight };

// How a trained tensor begins.
struct InitialValue {
  // graph: AdapterRule::initial_values; singular, qr: both matrices of a pair, by compile/weight_factors.h.
  enum class Kind { zero, constant, uniform, normal, graph, singular, qr };
  Kind kind = Kind::zero;
  double value = 0;  // the constant, the bound of the uniform numbers, the deviation of the normal ones, the rounds
  bool operator==(const InitialValue&) const = default;
};

// A linear or convolution layer and what the user set for it.
struct AdapterLayer {
  std::string module;  // "double_blocks.0.img_attn.qkv", "<component>:" before it unless the denoiser's
  Shape weight;        // [out, in], of a convolution [out, in, kh, kw]
  int64_t stride = 1;
  std::array<int64_t, 4> pad{};  // top, left, bottom, right
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0, rank_dropout = 0;  // 0 where the graph is not trained
  bool is_conv() const { return weight.rank() == 4; }
};

struct AdapterForm {
  enum class Kind { none, pair, output, weight };  // lora_host/adapter.h; none: the layer is left alone
  Kind kind = Kind::none;
  double scale = 1;  // of a pair
  int64_t rank = 0;
  double alpha = 0;         // in files; 0: none
  bool from_start = false;  // of a pair: its change is counted from the values that it begins with
};

struct AdapterTensorSpec {
  std::string key;  // "lora_down.weight"
  TensorRole role = TensorRole::other;
  Shape shape;
  InitialValue initial = {};
};

class AdapterRule {
 public:
  using Values = std::map<std::string, Value>;
  virtual ~AdapterRule() = default;
  virtual AdapterForm form(const AdapterLayer& layer) const = 0;
  virtual std::vector<AdapterTensorSpec> tensors(const AdapterLayer& layer) const = 0;
  // Append nodes to a graph whose inputs and outputs are empty; `given` has the inputs that there are. What else the
  // rule asks for ("keep.rank", "keep.element") is an input of the graph afterwards.
  virtual Value build_output(Graph& graph, const AdapterLayer& layer, const Values& given, int32_t scope) const = 0;
  virtual Value build_weight(Graph& graph, const AdapterLayer& layer, const Values& given, int32_t scope) const = 0;
  // A graph of its own: from the input "weight" (f32) to each tensor that begins as a graph says.
  virtual Graph initial_values(const AdapterLayer& layer) const = 0;
};

}  // namespace lh
