// The handles of the C ABI as the host sees them: what lies behind lh_host, lh_model_ctx and lh_graph.
//
// Handles of models and builds come from a pool and are never freed, so that one which a plugin keeps too long is
// recognised instead of followed into freed memory.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "graph/graph.h"
#include "io/documents.h"
#include "lora_host/lora_host.h"

namespace lh {

// One for each loaded library, for the life of the process.
struct PluginHost : lh_host {
  std::string id, version;
  std::filesystem::path path;
};

// The thread whose callback was given a handle, and misuse that other threads were seen at.
class Gate {
 public:
  void open();
  void close();
  bool is_open_here() const;
  void report(const std::string& misuse);
  std::optional<std::string> take_report();

 private:
  std::atomic<const void*> thread_{nullptr};
  std::mutex mutex_;
  std::optional<std::string> misuse_;
};

struct ModelContext : lh_model_ctx {
  const PluginHost* plugin = nullptr;
  std::vector<const std::pair<const std::string, Desc>*> weights = {};  // sorted by name
  const Documents* documents = nullptr;
  std::map<std::string, std::string> settings = {};
  std::map<std::string, std::string> texts = {};  // that were given out
  std::mutex calls = {};                          // one callback at a time
  Gate gate = {};

  size_t lower_bound(std::string_view name) const;  // the first weight whose name is not less
  const Desc* find(std::string_view name) const;    // nullptr when there is none
};

struct GraphContext : lh_graph {
  const PluginHost* plugin = nullptr;
  const ModelContext* model = nullptr;  // whose weights `param` takes
  Graph* graph = nullptr;
  std::vector<int32_t> scopes = {0};
  std::map<std::string, Value> given = {};  // inputs that another role has computed
  std::optional<Error> error = {};          // the first one stays
  Gate gate = {};
};

// Gives a handle back to the pool.
struct GiveBack {
  void operator()(ModelContext* handle) const;
  void operator()(GraphContext* handle) const;
};
using ModelHandle = std::unique_ptr<ModelContext, GiveBack>;
using GraphHandle = std::unique_ptr<GraphContext, GiveBack>;

// weights and documents must outlive the handle.
ModelHandle open_context(const PluginHost& plugin, const std::map<std::string, Desc>& weights,
                         const Documents* documents = nullptr, const std::map<std::string, std::string>& settings = {});
GraphHandle open_graph(const PluginHost& plugin, Graph& graph, const ModelContext* model = nullptr,
                       const std::map<std::string, Value>& given = {});

}  // namespace lh
