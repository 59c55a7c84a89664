// The host's side of the C ABI: what lh_host and lh_graph are, and the table of functions that plugins call.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "graph/graph.h"
#include "lora_host/lora_host.h"

// One for each loaded plugin.
struct lh_host {
  std::string plugin;                                        // for messages
  const std::map<std::string, lh::Desc>* weights = nullptr;  // canonical names; set around probe and create
  std::map<std::string, std::string> settings;               // of the user, for `setting`
  mutable std::string failure;                               // text of the last fail()
};

// A graph under construction; the first error stays.
struct lh_graph {
  const lh_host* host = nullptr;
  lh::Graph* graph = nullptr;
  std::vector<int32_t> scopes{0};
  std::map<std::string, lh::Value> given = {};  // inputs that another role has computed
  mutable std::string error;
};

namespace lh {

const lh_host_api& host_api();
Desc from_abi(const lh_desc& desc, DType compute);
lh_desc to_abi(const Desc& desc);

}  // namespace lh
