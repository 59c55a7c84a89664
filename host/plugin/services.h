// The host's side of the C ABI: the table of functions that plugins call.
#pragma once

#include <string>

#include "core/tensor.h"
#include "plugin/handles.h"

namespace lh {

const lh_host_api& host_api();

Desc from_abi(const lh_desc& desc, DType compute);
lh_desc to_abi(const Desc& desc);

// The host's record behind a handle that a plugin passes to `function`; nullptr, and the plugin's call fails, where
// this thread is in no callback that was given the handle.
ModelContext* usable(const lh_model_ctx* handle, const char* function);
GraphContext* usable(const lh_graph* handle, const char* function);

// The functions of the table for weights and documents, and those that build graphs.
void fill_model_services(lh_host_api& api);
void fill_graph_services(lh_host_api& api);

}  // namespace lh
