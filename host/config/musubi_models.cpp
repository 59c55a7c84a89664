#include "config/musubi_models.h"

#include <algorithm>

#include "config/scalar.h"
#include "core/lower.h"

namespace lh::musubi {

Models::Models(std::span<const PluginKeys> plugins) {
  for (const PluginKeys& plugin : plugins)
    if (plugin.musubi) all_.push_back(&plugin);
}

const PluginKeys* Models::of_network(const std::string& module) const {
  const auto found = std::ranges::find(all_, module, [](const auto* plugin) { return plugin->musubi->network_module; });
  return found == all_.end() ? nullptr : *found;
}

std::vector<const PluginKeys*> Models::with(const std::string& argument) const {
  std::vector<const PluginKeys*> found;
  for (const PluginKeys* plugin : all_)
    if (plugin->musubi->paths.contains(argument) || plugin->musubi->words.contains(argument)) found.push_back(plugin);
  return found;
}

const PluginKeys* Models::of(const Given& given) const {
  const auto text = [&](const char* name) {
    const auto found = given.find(name);
    return found == given.end() ? std::string() : found->second.second->text;
  };
  if (const std::string named = text("plugin"); !named.empty()) {
    const auto found = std::ranges::find(all_, named, &PluginKeys::plugin);
    return found == all_.end() ? nullptr : *found;
  }
  if (const PluginKeys* found = of_network(text("network_module")); found != nullptr) return found;
  // Those that have all of the arguments that not every script has.
  std::vector<const PluginKeys*> left = all_;
  bool told = false;
  for (const auto& [name, entry] : given) {
    const auto has = [&, &name = name, value = entry.second](const PluginKeys* plugin) {
      const MusubiModel& model = *plugin->musubi;
      return model.paths.contains(name) || std::ranges::find(model.arguments, name) != model.arguments.end() ||
             word_of(model, name, *value) != nullptr;
    };
    if (std::ranges::none_of(all_, has)) continue;
    told = true;
    std::erase_if(left, [&](const PluginKeys* plugin) { return !has(plugin); });
  }
  return told && left.size() == 1 ? left.front() : nullptr;
}

const MusubiModel::Word* word_of(const MusubiModel& model, const std::string& argument, const yaml::Node& value) {
  const auto words = model.words.find(argument);
  if (words == model.words.end()) return nullptr;
  const auto found = std::ranges::find(words->second, lower(value.text),
                                       [](const MusubiModel::Word& word) { return lower(word.word); });
  return found == words->second.end() ? nullptr : &*found;
}

}  // namespace lh::musubi
