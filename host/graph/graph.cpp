// Adds values and nodes, each through the shape rule of its op.
#include "graph/graph.h"

#include <algorithm>

#include "core/error.h"
#include "graph/op.h"

namespace lh {

const Attrs::Item& Attrs::at(std::string_view name) const {
  const auto it = items_.find(std::string(name));
  if (it == items_.end()) fail(Code::internal, "attribute '{}' is missing", name);
  return it->second;
}

namespace {

template <typename T>
const T& typed(const Attrs::Item& item, std::string_view name, const char* type) {
  const T* value = std::get_if<T>(&item);
  if (value == nullptr) fail(Code::plugin, "attribute '{}' must be {}", name, type);
  return *value;
}

}  // namespace

int64_t Attrs::i(std::string_view name) const { return typed<int64_t>(at(name), name, "an integer"); }

double Attrs::f(std::string_view name) const {
  const Item& item = at(name);
  if (const auto* integer = std::get_if<int64_t>(&item)) return static_cast<double>(*integer);
  return typed<double>(item, name, "a number");
}

const std::string& Attrs::s(std::string_view name) const { return typed<std::string>(at(name), name, "a string"); }

const std::vector<int64_t>& Attrs::list(std::string_view name) const {
  return typed<std::vector<int64_t>>(at(name), name, "a list of integers");
}

Value Graph::new_value(ValueInfo info) {
  values_.push_back(std::move(info));
  return Value{static_cast<uint32_t>(values_.size())};
}

Value Graph::add_input(const std::string& name, Desc desc) {
  if (inputs.contains(name)) fail(Code::plugin, "graph input '{}' is declared twice", name);
  const Value v = new_value({.desc = std::move(desc), .kind = ValueKind::input, .name = name});
  inputs[name] = v;
  return v;
}

Value Graph::add_param(const std::string& name, Desc desc) {
  const auto it = params.find(name);
  if (it != params.end()) return it->second;
  const Value v = new_value({.desc = std::move(desc), .kind = ValueKind::param, .name = name});
  params[name] = v;
  return v;
}

Value Graph::add_constant(HostTensor tensor) {
  Desc desc = tensor.desc;
  return new_value({.desc = std::move(desc), .kind = ValueKind::constant, .constant = std::move(tensor)});
}

std::vector<Value> Graph::add(const OpDef& op, std::vector<Value> inputs, Attrs attrs, int32_t scope) {
  Node node{.op = &op, .inputs = std::move(inputs), .attrs = std::move(attrs), .scope = scope};
  std::vector<const Desc*> in;
  in.reserve(node.inputs.size());
  for (const Value v : node.inputs) in.push_back(v ? &desc(v) : nullptr);
  std::vector<Desc> out;
  try {
    out = op.infer({compute, in, node.attrs});
  } catch (const Error& e) {
    fail(e.code() == Code::internal ? Code::internal : Code::plugin, "{}: {}", describe(node), e.what());
  }
  for (Desc& d : out) node.outputs.push_back(new_value({.desc = std::move(d)}));
  nodes.push_back(std::move(node));
  return nodes.back().outputs;
}

std::set<Value> parameters(const Graph& graph) {
  std::set<Value> values;
  for (const auto& [name, v] : graph.params) values.insert(v);
  return values;
}

std::string Graph::describe(const Node& node) const {
  std::string text = fmt::format("{} in '{}' (", node.op->name, scopes[static_cast<size_t>(node.scope)].path);
  const char* separator = "";
  for (const Value v : node.inputs) {
    text += separator;
    separator = ", ";
    if (!v) {
      text += "-";
      continue;
    }
    if (!info(v).name.empty()) text += info(v).name + " ";
    text += desc(v).text();
  }
  return text + ")";
}

}  // namespace lh
