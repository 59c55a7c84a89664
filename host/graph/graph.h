// The graph: a list of nodes in execution order over values with concrete shapes.
//
// A plugin describes a role by adding nodes through the C ABI (plugin/services.h); host passes then read and rewrite
// the list: adapt (LoRA), differentiate, recompute, plan, lower. Values are 1-based indices, 0 means "none".
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace lh {

struct OpDef;

struct Value {
  uint32_t id = 0;
  explicit operator bool() const { return id != 0; }
  bool operator==(const Value&) const = default;
  auto operator<=>(const Value&) const = default;
};

// Attributes of a node. Reading a missing one is a bug of the op's catalogue entry and throws.
class Attrs {
 public:
  using Item = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Item>> items) : items_(items) {}

  bool has(std::string_view name) const { return items_.contains(std::string(name)); }
  void set(std::string name, Item item) { items_[std::move(name)] = std::move(item); }
  int64_t i(std::string_view name) const;
  double f(std::string_view name) const;  // an integer counts as a float
  const std::string& s(std::string_view name) const;
  const std::vector<int64_t>& list(std::string_view name) const;
  const std::map<std::string, Item>& items() const { return items_; }

 private:
  const Item& at(std::string_view name) const;
  std::map<std::string, Item> items_;
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<Value> inputs;  // absent optional inputs are 0
  std::vector<Value> outputs;
  Attrs attrs;
  int32_t scope = 0;  // index into Graph::scopes
};

enum class ValueKind { input, param, constant, computed };

struct ValueInfo {
  Desc desc;
  ValueKind kind = ValueKind::computed;
  std::string name;            // of inputs and params
  bool channels_last = false;  // a convolution weight: stored [O, K..., I] though the file has [O, I, K...]
  HostTensor constant;         // kind constant only
  Value scale;                 // of a weight: the parameter with the factors that multiply it; 0 for none
};

struct Scope {
  std::string path;  // "denoiser/blocks.3"
  int32_t parent = 0;
  bool checkpoint = false;  // activations inside may be dropped and recomputed
};

class Graph {
 public:
  explicit Graph(DType compute) : compute(compute) {}

  DType compute;  // storage type of activations
  std::vector<Node> nodes;
  std::vector<Scope> scopes{Scope{}};
  std::map<std::string, Value> inputs, outputs, params;

  Value add_input(const std::string& name, Desc desc);
  Value add_param(const std::string& name, Desc desc);  // the same name gives the same value
  Value add_constant(HostTensor tensor);
  // Runs the op's shape rule and appends a node; throws lh::Error naming op, scope and input shapes.
  std::vector<Value> add(const OpDef& op, std::vector<Value> inputs, Attrs attrs, int32_t scope);

  const ValueInfo& info(Value v) const { return values_[v.id - 1]; }
  ValueInfo& info(Value v) { return values_[v.id - 1]; }
  const Desc& desc(Value v) const { return info(v).desc; }
  size_t value_count() const { return values_.size(); }
  std::string describe(const Node& node) const;  // "rope/1 in blocks.0 (bfloat16 [..], ...)"

  Value new_value(ValueInfo info);

 private:
  std::vector<ValueInfo> values_;
};

std::set<Value> parameters(const Graph& graph);

}  // namespace lh
