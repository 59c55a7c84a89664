// How a plugin builds a graph: inputs, weights, constants, ops, outputs.
#include <cstring>

#include "graph/catalogue.h"
#include "graph/op.h"
#include "plugin/call.h"
#include "plugin/services.h"

namespace lh {
namespace {

// The files are wrong, not the plugin.
struct WrongFiles : Error {
  explicit WrongFiles(const std::string& text) : Error(Code::data, text) {}
};

// What an op says of integers where weights should be is about the file that they are from.
void refuse_integers(const Graph& graph, const std::vector<Value>& inputs, const std::string& why) {
  for (const Value in : inputs) {
    if (!in || is_float(graph.desc(in).dtype) || !graph.params.contains(graph.info(in).name)) continue;
    throw WrongFiles(fmt::format(
        "tensor '{}' is {}, expected floating numbers: the file holds weights in a form that is not read here, or is "
        "no file of this model ({})",
        graph.info(in).name, graph.desc(in).text(), why));
  }
}

// Runs `body` unless the graph already failed; a C++ exception becomes the graph's error.
template <typename Body>
lh_status guarded(const lh_graph* handle, const char* function, Body body) {
  GraphContext* g = usable(handle, function);
  if (g == nullptr) return LH_E_INVALID;
  if (!g->error) {
    try {
      body(*g);
      return LH_OK;
    } catch (const WrongFiles& e) {
      g->error = e;
    } catch (const std::bad_alloc&) {
      g->error.emplace(Code::resource, fmt::format("{}: the machine has no memory left", function));
    } catch (const std::exception& e) {
      g->error.emplace(Code::plugin, e.what());
    }
  }
  if (Call* call = Call::current()) call->note_failure(g->error->what());
  return LH_E_GRAPH;
}

// A pointer that must not be NULL.
template <typename T>
const T* need(const T* pointer, const char* function, const char* what) {
  if (pointer == nullptr) fail(Code::plugin, "{}: a NULL pointer for {}", function, what);
  return pointer;
}

Value checked(const GraphContext& g, lh_value v) {
  if (v.id > g.graph->value_count()) fail(Code::plugin, "value {} is not of this graph", v.id);
  return Value{v.id};
}

lh_value input(lh_graph* handle, const char* name, const lh_desc* desc) {
  Value v;
  guarded(handle, "input", [&](GraphContext& g) {
    const Desc wanted = from_abi(*need(desc, "input", "desc"), g.graph->compute);
    const auto known = g.given.find(need(name, "input", "name"));
    v = known == g.given.end() ? g.graph->add_input(name, wanted) : known->second;
    if (g.graph->desc(v) != wanted)
      fail(Code::plugin, "input '{}' is {}, another role gives {}", name, wanted.text(), g.graph->desc(v).text());
  });
  return {v.id};
}

lh_value param(lh_graph* handle, const char* name) {
  Value v;
  guarded(handle, "param", [&](GraphContext& g) {
    need(name, "param", "name");
    if (g.model == nullptr) fail(Code::plugin, "'{}': this graph has no checkpoint to take weights from", name);
    const Desc* weight = g.model->find(name);
    if (weight == nullptr) throw WrongFiles(fmt::format("the checkpoint has no tensor '{}'", name));
    // Weights are kept in the type the host computes in; integers stay as they are.
    const DType dtype = is_float(weight->dtype) ? g.graph->compute : weight->dtype;
    v = g.graph->add_param(name, {dtype, weight->shape});
  });
  return {v.id};
}

lh_value constant(lh_graph* handle, const lh_desc* desc, const void* data) {
  Value v;
  guarded(handle, "constant", [&](GraphContext& g) {
    HostTensor tensor(from_abi(*need(desc, "constant", "desc"), DType::f32));
    if (!tensor.data.empty())
      std::memcpy(tensor.data.data(), need(static_cast<const char*>(data), "constant", "data"), tensor.data.size());
    v = g.graph->add_constant(std::move(tensor));
  });
  return {v.id};
}

Attrs from_abi_attrs(const lh_attr* attrs, uint32_t count) {
  Attrs out;
  if (count > 0) need(attrs, "op", "attributes");
  for (uint32_t i = 0; i < count; ++i) {
    const lh_attr& a = attrs[i];
    need(a.name, "op", "the name of an attribute");
    if (a.type == LH_ATTR_STRING || (a.type == LH_ATTR_I64_LIST && a.count > 0)) need(a.v.s, "op", a.name);
    switch (a.type) {
      case LH_ATTR_I64: out.set(a.name, a.v.i); break;
      case LH_ATTR_F64: out.set(a.name, a.v.f); break;
      case LH_ATTR_STRING: out.set(a.name, std::string(a.v.s)); break;
      case LH_ATTR_I64_LIST: out.set(a.name, std::vector<int64_t>(a.v.is, a.v.is + a.count)); break;
      default: fail(Code::plugin, "attribute '{}' has the unknown type {}", a.name, a.type);
    }
  }
  return out;
}

lh_status op(lh_graph* handle, const char* name, const lh_value* in, uint32_t n_in, const lh_attr* attrs,
             uint32_t n_attr, lh_value* out, uint32_t n_out) {
  return guarded(handle, "op", [&](GraphContext& g) {
    const CatalogueEntry* entry = find_in_catalogue(need(name, "op", "its name"));
    const OpDef* def = find_op(name);
    if (entry == nullptr || def == nullptr)
      fail(Code::plugin, "unknown op '{}'; this host speaks ABI {}.{}", name, LH_ABI_MAJOR, LH_ABI_MINOR);
    Attrs checked_attributes = checked_attrs(*entry, from_abi_attrs(attrs, n_attr), n_in, n_out);
    if (n_in > 0) need(in, name, "its inputs");
    if (n_out > 0) need(out, name, "its results");
    std::vector<Value> inputs;
    for (uint32_t i = 0; i < n_in; ++i) inputs.push_back(checked(g, in[i]));
    std::vector<Value> made;
    try {
      made = g.graph->add(*def, inputs, std::move(checked_attributes), g.scopes.back());
    } catch (const Error& error) {
      refuse_integers(*g.graph, inputs, error.what());
      throw;
    }
    for (uint32_t i = 0; i < n_out; ++i) out[i] = {made[i].id};
  });
}

void output(lh_graph* handle, const char* name, lh_value value) {
  guarded(handle, "output", [&](GraphContext& g) {
    const Value v = checked(g, value);
    if (!v) fail(Code::plugin, "graph output '{}' has no value", need(name, "output", "name"));
    g.graph->outputs[need(name, "output", "name")] = v;
  });
}

void scope(lh_graph* handle, const char* name, uint64_t flags) {
  guarded(handle, "scope", [&](GraphContext& g) {
    if (name == nullptr) {
      if (g.scopes.size() == 1) fail(Code::plugin, "scope is popped more often than pushed");
      g.scopes.pop_back();
      return;
    }
    const int32_t parent = g.scopes.back();
    const std::string& above = g.graph->scopes[static_cast<size_t>(parent)].path;
    g.scopes.push_back(static_cast<int32_t>(g.graph->scopes.size()));
    g.graph->scopes.push_back({above.empty() ? name : above + "/" + name, parent, (flags & LH_SCOPE_CHECKPOINT) != 0});
  });
}

lh_status describe(const lh_graph* handle, lh_value value, lh_desc* out) {
  return guarded(handle, "describe", [&](GraphContext& g) {
    const Value v = checked(g, value);
    if (!v) fail(Code::plugin, "describe of no value");
    need(out, "describe", "out");
    *out = to_abi(g.graph->desc(v));
  });
}

}  // namespace

void fill_graph_services(lh_host_api& api) {
  api.input = input;
  api.param = param;
  api.constant = constant;
  api.op = op;
  api.output = output;
  api.scope = scope;
  api.describe = describe;
}

}  // namespace lh
