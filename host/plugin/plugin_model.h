// A plugin's model over weights: what its `create` gave, until this object ends. Several can be open at once, of one
// plugin too, and be used by several threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plugin/registry.h"

namespace lh {

using Sizes = std::map<std::string, int64_t>;
using SizeLists = std::map<std::string, std::vector<int64_t>>;

class PluginModel {
 public:
  // Throws lh::Error that names the plugin: data where the weights do not fit it, config for a setting that it does not
  // take, plugin for everything else. weights and documents must outlive this object.
  PluginModel(const Offered<lh_model>& offered, const std::map<std::string, Desc>& weights,
              const Documents* documents = nullptr, const std::map<std::string, std::string>& settings = {});
  ~PluginModel();
  PluginModel(const PluginModel&) = delete;
  PluginModel& operator=(const PluginModel&) = delete;

  std::string recipe() const;  // its YAML
  const std::vector<std::string>& roles() const { return roles_; }
  // Adds the role's nodes to the graph. given: inputs that another role has computed.
  void build(Graph& graph, const std::string& role, const Sizes& sizes, const SizeLists& lists = {},
             const std::map<std::string, Value>& given = {}) const;

 private:
  std::string call_name(const std::string& what) const;
  void read_roles();
  void destroy() noexcept;
  Offered<lh_model> offered_;
  ModelHandle context_;
  void* self_ = nullptr;
  std::vector<std::string> roles_;
};

// How sure a plugin is of these weights, 0 to 100, and what it takes them for instead.
struct Probe {
  int32_t confidence = 0;
  std::string words;
};
Probe probe(const Offered<lh_model>& offered, const std::map<std::string, Desc>& weights, const Documents* documents);

}  // namespace lh
