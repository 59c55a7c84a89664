// Fills the table; graph and model services have files of their own.
#include "plugin/services.h"

#include <algorithm>

#include "core/log.h"
#include "graph/catalogue.h"
#include "plugin/call.h"

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

// A handle that this thread must not use: the callback fails, this thread's or that of the thread which may.
void report_misuse(const PluginHost* plugin, Gate* gate, const char* function, const char* handle) {
  const std::string text =
      fmt::format("called {} on a thread that is in no callback with this {} (abi.h, Threads)", function, handle);
  if (Call* call = Call::current())
    call->doom(Code::plugin, text);
  else if (gate != nullptr)
    gate->report(text);
  log_debug("plugin '{}' {}", plugin == nullptr ? "?" : plugin->id, text);
}

template <typename Context, typename Handle>
Context* checked(const Handle* handle, const char* function, const char* kind) {
  // The host makes every handle, as part of its own record.
  auto* context = const_cast<Context*>(static_cast<const Context*>(handle));
  if (context != nullptr && context->gate.is_open_here()) return context;
  report_misuse(context == nullptr ? nullptr : context->plugin, context == nullptr ? nullptr : &context->gate, function,
                kind);
  return nullptr;
}

void log(const lh_host* host, int32_t level, const char* text) {
  constexpr LogLevel levels[] = {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error};
  const Call* call = Call::current();
  const PluginHost* plugin = host != nullptr   ? static_cast<const PluginHost*>(host)
                             : call != nullptr ? &call->plugin()
                                               : nullptr;
  log_at(levels[std::clamp(level, 0, 3)], "{}{}", plugin == nullptr ? "" : plugin->id + ": ",
         text == nullptr ? "(no text)" : text);
}

lh_status fail_call(lh_status code, const char* text) {
  if (Call* call = Call::current()) call->fail(code, text);
  return code;
}

const char* failure() {
  const Call* call = Call::current();
  return call == nullptr ? "" : call->last_failure().c_str();
}

const void* extension(const char*) { return nullptr; }

int32_t has_op(const char* op) { return op != nullptr && find_in_catalogue(op) != nullptr ? 1 : 0; }

}  // namespace

ModelContext* usable(const lh_model_ctx* handle, const char* function) {
  return checked<ModelContext>(handle, function, "lh_model_ctx");
}

GraphContext* usable(const lh_graph* handle, const char* function) {
  return checked<GraphContext>(handle, function, "lh_graph");
}

const lh_host_api& host_api() {
  static const lh_host_api api = [] {
    lh_host_api table{};
    table.struct_size = sizeof(lh_host_api);
    table.abi_major = LH_ABI_MAJOR;
    table.abi_minor = LH_ABI_MINOR;
    table.log = log;
    table.fail = fail_call;
    table.failure = failure;
    table.extension = extension;
    table.has_op = has_op;
    fill_model_services(table);
    fill_graph_services(table);
    return table;
  }();
  return api;
}

}  // namespace lh
