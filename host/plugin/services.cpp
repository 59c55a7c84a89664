#include "plugin/services.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "graph/catalogue.h"
#include "graph/op.h"

namespace lh {

Desc from_abi(const lh_desc& desc, DType compute) {
  if (desc.rank > LH_MAX_RANK) fail(Code::plugin, "rank {} is above the limit of {}", desc.rank, LH_MAX_RANK);
  if (desc.dtype != LH_FLOAT && (desc.dtype < LH_F32 || desc.dtype > LH_U8))
    fail(Code::plugin, "unknown dtype {}", desc.dtype);
  const DType dtype = desc.dtype == LH_FLOAT ? compute : static_cast<DType>(desc.dtype);
  return {dtype, Shape(std::vector<int64_t>(desc.dims, desc.dims + desc.rank))};
}

lh_desc to_abi(const Desc& desc) {
  lh_desc out{};
  out.dtype = static_cast<lh_dtype>(desc.dtype);
  out.rank = static_cast<uint32_t>(desc.shape.rank());
  std::ranges::copy(desc.shape.dims(), out.dims);
  return out;
}

namespace {

void log(const lh_host* host, int32_t level, const char* text) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                  spdlog::level::err};
  spdlog::log(levels[std::clamp(level, 0, 3)], "{}{}", host == nullptr ? "" : host->plugin + ": ", text);
}

lh_status fail_call(const lh_host* host, lh_status code, const char* text) {
  host->failure = text;
  return code;
}

const void* extension(const lh_host*, const char*) { return nullptr; }

uint64_t weight_count(const lh_host* host) { return host->weights == nullptr ? 0 : host->weights->size(); }

lh_status weight_at(const lh_host* host, uint64_t index, const char** name, lh_desc* out) {
  if (index >= weight_count(host)) return LH_E_INVALID;
  const auto it = std::next(host->weights->begin(), static_cast<int64_t>(index));
  *name = it->first.c_str();
  *out = to_abi(it->second);
  return LH_OK;
}

lh_status weight_find(const lh_host* host, const char* name, lh_desc* out) {
  if (host->weights == nullptr) return LH_E_MODEL;
  const auto it = host->weights->find(name);
  if (it == host->weights->end()) return LH_E_MODEL;
  *out = to_abi(it->second);
  return LH_OK;
}

lh_status setting(const lh_host* host, const char* key, const char** out) {
  const auto it = host->settings.find(key);
  if (it == host->settings.end()) return LH_E_INVALID;
  *out = it->second.c_str();
  return LH_OK;
}

// Runs `body` unless the graph already failed; a C++ exception becomes the graph's error.
template <typename Body>
lh_status guarded(const lh_graph* g, Body body) {
  if (!g->error.empty()) return LH_E_GRAPH;
  try {
    body();
    return LH_OK;
  } catch (const std::exception& e) {
    g->error = e.what();
    return LH_E_GRAPH;
  }
}

Value checked(const lh_graph* g, lh_value v) {
  if (v.id > g->graph->value_count()) fail(Code::plugin, "value {} is not of this graph", v.id);
  return Value{v.id};
}

int32_t has_op(const lh_host*, const char* op) { return find_in_catalogue(op) != nullptr ? 1 : 0; }

lh_value input(lh_graph* g, const char* name, const lh_desc* desc) {
  Value v;
  guarded(g, [&] {
    const Desc wanted = from_abi(*desc, g->graph->compute);
    const auto known = g->given.find(name);
    v = known == g->given.end() ? g->graph->add_input(name, wanted) : known->second;
    if (g->graph->desc(v) != wanted)
      fail(Code::plugin, "input '{}' is {}, another role gives {}", name, wanted.text(), g->graph->desc(v).text());
  });
  return {v.id};
}

lh_value param(lh_graph* g, const char* name) {
  Value v;
  guarded(g, [&] {
    if (g->host->weights == nullptr)
      fail(Code::plugin, "'{}': this graph has no checkpoint to take weights from", name);
    const auto it = g->host->weights->find(name);
    if (it == g->host->weights->end()) fail(Code::data, "the checkpoint has no tensor '{}'", name);
    // Weights are kept in the type the host computes in; integers stay as they are.
    const DType dtype = is_float(it->second.dtype) ? g->graph->compute : it->second.dtype;
    v = g->graph->add_param(name, {dtype, it->second.shape});
  });
  return {v.id};
}

lh_value constant(lh_graph* g, const lh_desc* desc, const void* data) {
  Value v;
  guarded(g, [&] {
    HostTensor tensor(from_abi(*desc, DType::f32));
    std::memcpy(tensor.data.data(), data, tensor.data.size());
    v = g->graph->add_constant(std::move(tensor));
  });
  return {v.id};
}

Attrs from_abi_attrs(const lh_attr* attrs, uint32_t count) {
  Attrs out;
  for (uint32_t i = 0; i < count; ++i) {
    const lh_attr& a = attrs[i];
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

lh_status op(lh_graph* g, const char* name, const lh_value* in, uint32_t n_in, const lh_attr* attrs, uint32_t n_attr,
             lh_value* out, uint32_t n_out) {
  return guarded(g, [&] {
    const CatalogueEntry* entry = find_in_catalogue(name);
    const OpDef* def = find_op(name);
    if (entry == nullptr || def == nullptr)
      fail(Code::plugin, "unknown op '{}'; this host speaks ABI {}.{}", name, LH_ABI_MAJOR, LH_ABI_MINOR);
    Attrs checked_attributes = checked_attrs(*entry, from_abi_attrs(attrs, n_attr), n_in, n_out);
    std::vector<Value> inputs;
    for (uint32_t i = 0; i < n_in; ++i) inputs.push_back(checked(g, in[i]));
    const std::vector<Value> made =
        g->graph->add(*def, std::move(inputs), std::move(checked_attributes), g->scopes.back());
    for (uint32_t i = 0; i < n_out; ++i) out[i] = {made[i].id};
  });
}

void output(lh_graph* g, const char* name, lh_value value) {
  guarded(g, [&] {
    const Value v = checked(g, value);
    if (!v) fail(Code::plugin, "graph output '{}' has no value", name);
    g->graph->outputs[name] = v;
  });
}

void scope(lh_graph* g, const char* name, uint64_t flags) {
  guarded(g, [&] {
    if (name == nullptr) {
      if (g->scopes.size() == 1) fail(Code::plugin, "scope is popped more often than pushed");
      g->scopes.pop_back();
      return;
    }
    const int32_t parent = g->scopes.back();
    const std::string& above = g->graph->scopes[static_cast<size_t>(parent)].path;
    g->scopes.push_back(static_cast<int32_t>(g->graph->scopes.size()));
    g->graph->scopes.push_back({above.empty() ? name : above + "/" + name, parent, (flags & LH_SCOPE_CHECKPOINT) != 0});
  });
}

lh_status describe(const lh_graph* g, lh_value value, lh_desc* out) {
  return guarded(g, [&] {
    const Value v = checked(g, value);
    if (!v) fail(Code::plugin, "describe of no value");
    *out = to_abi(g->graph->desc(v));
  });
}

}  // namespace

const lh_host_api& host_api() {
  static const lh_host_api api{
      .struct_size = sizeof(lh_host_api),
      .abi_major = LH_ABI_MAJOR,
      .abi_minor = LH_ABI_MINOR,
      .log = log,
      .fail = fail_call,
      .extension = extension,
      .weight_count = weight_count,
      .weight_at = weight_at,
      .weight_find = weight_find,
      .setting = setting,
      .has_op = has_op,
      .input = input,
      .param = param,
      .constant = constant,
      .op = op,
      .output = output,
      .scope = scope,
      .describe = describe,
  };
  return api;
}

}  // namespace lh
