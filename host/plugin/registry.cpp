// Opens the plugins of all folders and finds parts of them by id.
#include "plugin/registry.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "config/nearest.h"
#include "core/error.h"
#include "core/lower.h"
#include "io/checkpoint.h"

namespace lh {

Registry::Registry(const std::vector<std::filesystem::path>& directories, const std::vector<std::string>& asked_for)
    : plugins_(load_plugins(plugin_directories(directories), asked_for)) {}

namespace {

template <typename Descriptor, typename Has, typename List>
std::vector<Offered<Descriptor>> all_of(const Plugins& plugins, Has has, List list) {
  std::vector<Offered<Descriptor>> all;
  for (const PluginFile& plugin : plugins)
    if (has(plugin.offers()))
      for (const Descriptor* descriptor : ((*plugin).*list)()) all.push_back({descriptor, &plugin->host()});
  return all;
}

// That of this id, where the file listed one.
template <typename Descriptor, typename List>
Offered<Descriptor> part_of(const PluginFile& plugin, List list, const std::string& id) {
  for (const Descriptor* descriptor : ((*plugin).*list)())
    if (id == descriptor->id) return {descriptor, &plugin->host()};
  fail(Code::plugin, "{}: offers no '{}' any more: it listed one when it was tried", plugin.path().string(), id);
}

}  // namespace

Offered<lh_model> ListedModel::load() const { return part_of<lh_model>(*file, &Plugin::models, id); }

std::vector<ListedModel> Registry::listed_models() const {
  std::vector<ListedModel> all;
  for (const PluginFile& plugin : plugins_)
    for (const PluginOffers::Model& model : plugin.offers().models)
      all.push_back({model.id, model.checkpoint, &plugin});
  return all;
}

std::vector<Offered<lh_model>> Registry::models() const {
  return all_of<lh_model>(
      plugins_, [](const PluginOffers& o) { return !o.models.empty(); }, &Plugin::models);
}
std::vector<Offered<lh_sampler>> Registry::samplers() const {
  return all_of<lh_sampler>(
      plugins_, [](const PluginOffers& o) { return o.samplers; }, &Plugin::samplers);
}
std::vector<Offered<lh_schedule>> Registry::schedules() const {
  return all_of<lh_schedule>(
      plugins_, [](const PluginOffers& o) { return o.schedules; }, &Plugin::schedules);
}

std::vector<PluginKeys> Registry::model_keys() const {
  std::vector<PluginKeys> all;
  for (const ListedModel& model : listed_models()) try {
      all.push_back({model.id, {}});
      CheckpointSpec spec = CheckpointSpec::parse(model.checkpoint, model.id);
      all.back().keys = std::move(spec.keys);
      all.back().arch = std::move(spec.arch);
      all.back().model_kwargs = std::move(spec.model_kwargs);
      all.back().experts = std::move(spec.experts);
      all.back().musubi = std::move(spec.musubi);
      all.back().kohya_ss = std::move(spec.kohya_ss);
    } catch (const Error&) {
      continue;  // said when a model is opened with it; others can be
    }
  return all;
}

std::string Registry::model_id(const std::string& name) const {
  if (!is_plugin_path(name)) return name;
  const std::filesystem::path path = plugin_file(name);
  for (const PluginFile& plugin : plugins_) {
    if (plugin.path() != path) continue;
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

Offered<lh_optimizer> Registry::optimizer(const std::string& id) const {
  std::vector<std::string_view> known;
  const auto found = [](const PluginFile& plugin, const PluginOffers::Rule& rule) {
    return part_of<lh_optimizer>(plugin, &Plugin::optimizers, rule.id);
  };
  for (const PluginFile& plugin : plugins_)
    for (const PluginOffers::Rule& rule : plugin.offers().optimizers) {
      if (lower(id) == lower(rule.id)) return found(plugin, rule);
      known.emplace_back(rule.id);
    }
  for (const PluginFile& plugin : plugins_)
    for (const PluginOffers::Rule& rule : plugin.offers().optimizers)
      for (const std::string& name : rule.names)
        if (lower(id) == lower(name)) return found(plugin, rule);
  const std::string near = nearest_of(lower(id), known);
  fail(Code::config, "train.optimizer: optimizer '{}' is in no plugin.{} Known: {}", id,
       near.empty() ? "" : fmt::format(" Did you mean {}?", near),
       known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
}

Offered<lh_adapter> Registry::adapter(const std::string& id) const {
  std::vector<std::string_view> known;
  for (const PluginFile& plugin : plugins_)
    for (const std::string& adapter : plugin.offers().adapters) {
      if (id == adapter) return part_of<lh_adapter>(plugin, &Plugin::adapters, id);
      known.emplace_back(adapter);
    }
  const std::string near = nearest_of(id, known);
  fail(Code::config, "network.type: adapter '{}' is in no plugin.{} Known: {}", id,
       near.empty() ? "" : fmt::format(" Did you mean {}?", near),
       known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
}

}  // namespace lh
