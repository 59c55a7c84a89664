// Opens the plugins of all folders and finds parts of them by id.
#include "plugin/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "config/nearest.h"
#include "core/error.h"
#include "io/checkpoint.h"

namespace lh {

Registry::Registry(const std::vector<std::filesystem::path>& directories, const std::vector<std::string>& asked_for)
    : plugins_(load_plugins(plugin_directories(directories), asked_for)) {}

namespace {

template <typename Descriptor, typename List>
std::vector<Offered<Descriptor>> all_of(const Plugins& plugins, List list) {
  std::vector<Offered<Descriptor>> all;
  for (const auto& plugin : plugins)
    for (const Descriptor* descriptor : ((*plugin).*list)()) all.push_back({descriptor, &plugin->host()});
  return all;
}

}  // namespace

std::vector<Offered<lh_model>> Registry::models() const { return all_of<lh_model>(plugins_, &Plugin::models); }
std::vector<Offered<lh_sampler>> Registry::samplers() const { return all_of<lh_sampler>(plugins_, &Plugin::samplers); }
std::vector<Offered<lh_schedule>> Registry::schedules() const {
  return all_of<lh_schedule>(plugins_, &Plugin::schedules);
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

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

Offered<lh_optimizer> Registry::optimizer(const std::string& id) const {
  const auto all = all_of<lh_optimizer>(plugins_, &Plugin::optimizers);
  std::vector<std::string> known;
  for (const auto& offered : all) {
    if (lower(id) == lower(offered.descriptor->id)) return offered;
    known.emplace_back(offered.descriptor->id);
  }
  for (const auto& offered : all)
    for (const char* const* name = offered.descriptor->names; name != nullptr && *name != nullptr; ++name)
      if (lower(id) == lower(*name)) return offered;
  const std::vector<std::string_view> words(known.begin(), known.end());
  const std::string near = nearest_of(lower(id), words);
  fail(Code::config, "optimizer '{}' is in no plugin. Known: {}{}", id,
       known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
       near.empty() ? "" : fmt::format(". Did you mean {}?", near));
}

Offered<lh_adapter> Registry::adapter(const std::string& id) const {
  std::vector<std::string_view> known;
  for (const auto& offered : all_of<lh_adapter>(plugins_, &Plugin::adapters)) {
    if (id == offered.descriptor->id) return offered;
    known.emplace_back(offered.descriptor->id);
  }
  const std::string near = nearest_of(id, known);
  fail(Code::config, "network.type: adapter '{}' is in no plugin.{} Known: {}", id,
       near.empty() ? "" : fmt::format(" Did you mean {}?", near),
       known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
}

}  // namespace lh
