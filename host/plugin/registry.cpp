#include "plugin/registry.h"

#include <fmt/ranges.h>

#include "core/error.h"
#include "io/checkpoint.h"

namespace lh {

Registry::Registry(const std::vector<std::filesystem::path>& directories, const std::vector<std::string>& asked_for)
    : plugins_(load_plugins(plugin_directories(directories), asked_for)) {}

std::vector<Offered<lh_model>> Registry::models() const {
  std::vector<Offered<lh_model>> all;
  for (const auto& plugin : plugins_)
    for (const lh_model* model : plugin->models()) all.push_back({model, &plugin->host()});
  return all;
}

std::vector<Offered<lh_sampler>> Registry::samplers() const {
  std::vector<Offered<lh_sampler>> all;
  for (const auto& plugin : plugins_)
    for (const lh_sampler* sampler : plugin->samplers()) all.push_back({sampler, &plugin->host()});
  return all;
}

std::vector<PluginKeys> Registry::model_keys() const {
  std::vector<PluginKeys> all;
  for (const auto& [model, host] : models()) try {
      all.push_back({model->id, {}});
      all.back().keys = CheckpointSpec::parse(model->checkpoint, model->id).keys;
    } catch (const Error&) {
      continue;  // said when a model is opened with it; others can be
    }
  return all;
}

std::string Registry::model_id(const std::string& name) const {
  if (!is_plugin_path(name)) return name;
  const std::filesystem::path path = plugin_file(name);
  for (const auto& plugin : plugins_) {
    if (plugin->path() != path) continue;
    std::vector<std::string> ids;
    for (const lh_model* model : plugin->models()) ids.emplace_back(model->id);
    if (ids.size() == 1) return ids[0];
    if (ids.empty()) fail(Code::plugin, "{}: this plugin offers no model", path.string());
    fail(Code::plugin, "{}: this plugin offers several models: {}. Say which: `plugin: {}` with --plugin-dir {}",
         path.string(), fmt::join(ids, ", "), ids[0], path.parent_path().string());
  }
  fail(Code::plugin, "{}: this plugin is not loaded; give its folder with --plugin-dir {}", path.string(),
       path.parent_path().string());
}

namespace {

template <typename Descriptor, typename List>
Offered<Descriptor> find_by_id(const Plugins& plugins, List list, const std::string& kind, const std::string& id) {
  std::string known;
  for (const auto& plugin : plugins)
    for (const Descriptor* d : ((*plugin).*list)()) {
      if (id == d->id) return {d, &plugin->host()};
      known += (known.empty() ? "" : ", ") + std::string(d->id);
    }
  fail(Code::config, "{} '{}' is in no plugin. Known: {}", kind, id, known.empty() ? "none" : known);
}

}  // namespace

Offered<lh_optimizer> Registry::optimizer(const std::string& id) const {
  return find_by_id<lh_optimizer>(plugins_, &Plugin::optimizers, "optimizer", id);
}

Offered<lh_adapter> Registry::adapter(const std::string& id) const {
  return find_by_id<lh_adapter>(plugins_, &Plugin::adapters, "adapter", id);
}

Offered<lh_sampler> Registry::sampler(const std::string& id) const {
  return find_by_id<lh_sampler>(plugins_, &Plugin::samplers, "sampler", id);
}

}  // namespace lh
