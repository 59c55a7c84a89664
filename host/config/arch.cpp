#include "config/arch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "config/model_keys.h"

namespace lh {
namespace {

const PluginKeys* find(const std::vector<PluginKeys>& plugins, const std::string& name) {
  for (const PluginKeys& plugin : plugins)
    if (plugin.arch.contains(name)) return &plugin;
  return nullptr;
}

}  // namespace

void apply_arch(schema::Acting& on, const std::string& name, const yaml::Node& value) {
  if (on.arch == nullptr) return;
  Config& config = on.config;
  std::string known = name;
  const PluginKeys* owner = find(*on.arch, known);
  if (owner == nullptr) owner = find(*on.arch, known = name.substr(0, name.find(':')));
  if (owner == nullptr) {
    if (!config.plugin.empty()) return;
    std::set<std::string> names;
    for (const PluginKeys& plugin : *on.arch)
      for (const auto& [arch, settings] : plugin.arch)
        if (!arch.starts_with("is_")) names.insert(arch);
    on.alone = true;
    return on.problems.push_back(
        fmt::format("no plugin trains {}; those that are here train {}. Choose such a model, or name the plugin that "
                    "has this one (plugin: FILE.so)",
                    name.starts_with("is_") ? name.substr(3) : name, fmt::join(names, ", ")));
  }
  if (config.plugin.empty()) config.plugin = owner->plugin;
  if (config.plugin != owner->plugin) return;
  for (const auto& [setting, text] : owner->arch.at(known))
    config.model.given.try_emplace(
        setting,
        GivenValue{
            .text = text, .source = std::string(on.file), .line = value.place.line, .column = value.place.column});
}

}  // namespace lh
