// Every loaded plugin and what it offers, found by id.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/model_keys.h"
#include "plugin/loader.h"

namespace lh {

template <typename Descriptor>
struct Offered {
  const Descriptor* descriptor = nullptr;
  const PluginHost* host = nullptr;
};

// A model of a plugin that may not be loaded yet.
struct ListedModel {
  std::string id, checkpoint;  // the YAML of its files
  const PluginFile* file = nullptr;
  Offered<lh_model> load() const;
};

// A plugin is loaded where something of it is asked for.
class Registry {
 public:
  // asked_for: plugins that the user named, by id or path; empty names are none.
  Registry(const std::vector<std::filesystem::path>& directories, const std::vector<std::string>& asked_for);
  const Plugins& plugins() const { return plugins_; }
  std::vector<ListedModel> listed_models() const;
  // Of all plugins that have some.
  std::vector<Offered<lh_model>> models() const;
  std::vector<Offered<lh_sampler>> samplers() const;
  std::vector<Offered<lh_schedule>> schedules() const;
  // The keys of `model:` that each model has.
  std::vector<PluginKeys> model_keys() const;
  // The id of a model plugin that the user named by id or by the path of its file. Throws lh::Error(Code::plugin) where
  // the file has no model, or several.
  std::string model_id(const std::string& name) const;
  // Throws lh::Error(Code::config) that lists the known ids.
  Offered<lh_optimizer> optimizer(const std::string& id) const;
  Offered<lh_adapter> adapter(const std::string& id) const;

 private:
  Plugins plugins_;
};

}  // namespace lh
