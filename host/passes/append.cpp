#include "passes/append.h"

#include <set>

#include "core/error.h"

namespace lh {
namespace {

void require_same(const std::string& name, const Desc& there, const Desc& here) {
  if (there != here)
    fail(Code::internal, "'{}' is {} in one graph and {} in the other", name, there.text(), here.text());
}

// By scope of `piece`: the scope of `graph` with its path, each once; a new one where there is none.
std::vector<int32_t> scopes_of(Graph& graph, const Graph& piece) {
  std::vector<int32_t> own{0};
  std::set<size_t> taken;
  for (size_t i = 1; i < piece.scopes.size(); ++i) {
    const Scope& scope = piece.scopes[i];
    size_t at = 1;
    while (at < graph.scopes.size() && (taken.contains(at) || graph.scopes[at].path != scope.path)) ++at;
    if (at == graph.scopes.size())
      graph.scopes.push_back({scope.path, own[static_cast<size_t>(scope.parent)], scope.checkpoint});
    taken.insert(at);
    own.push_back(static_cast<int32_t>(at));
  }
  return own;
}

// Values of the piece as values of the graph, made as they are met.
class Adoption {
 public:
  Adoption(Graph& graph, const Graph& piece, const InputOf& input) : graph_(graph), piece_(piece), input_(input) {}

  Value operator()(Value v) {
    if (!v) return v;
    if (const auto known = own_.find(v); known != own_.end()) return known->second;
    const Value made = adopt(piece_.info(v));
    return own_[v] = made;
  }

 private:
  Value adopt(const ValueInfo& info) {
    if (info.kind == ValueKind::input) return input_(info.name, info.desc);
    if (info.kind != ValueKind::param) return graph_.new_value(info);
    const Value scale = (*this)(info.scale);
    const bool known = graph_.params.contains(info.name);
    const Value own = graph_.add_param(info.name, info.desc);
    if (!known) {
      graph_.info(own).channels_last = info.channels_last;
      graph_.info(own).scale = scale;
    }
    require_same(info.name, graph_.desc(own), info.desc);
    return own;
  }

  Graph& graph_;
  const Graph& piece_;
  const InputOf& input_;
  std::map<Value, Value> own_;
};

}  // namespace

std::map<std::string, Value> append(Graph& graph, const Graph& piece, const InputOf& input) {
  const std::vector<int32_t> scopes = scopes_of(graph, piece);
  Adoption own(graph, piece, input);
  for (const Node& node : piece.nodes) {
    Node copy = node;
    for (Value& in : copy.inputs) in = own(in);
    for (Value& out : copy.outputs) out = own(out);
    copy.scope = scopes[static_cast<size_t>(node.scope)];
    graph.nodes.push_back(std::move(copy));
  }
  std::map<std::string, Value> outputs;
  for (const auto& [name, v] : piece.outputs) outputs[name] = own(v);
  return outputs;
}

Value shared_input(Graph& graph, const std::string& name, const Desc& desc) {
  const auto known = graph.inputs.find(name);
  if (known == graph.inputs.end()) return graph.add_input(name, desc);
  require_same(name, graph.desc(known->second), desc);
  return known->second;
}

}  // namespace lh
