#include "config/arch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "config/model_keys.h"
#include "config/scalar.h"

namespace lh {
namespace {

std::vector<const PluginKeys*> having(const std::vector<PluginKeys>& plugins, const std::string& name) {
  std::vector<const PluginKeys*> found;
  for (const PluginKeys& plugin : plugins)
    if (plugin.arch.contains(name)) found.push_back(&plugin);
  return found;
}

// The value as one of those that the plugin names: a number may be written in another way.
const std::map<std::string, std::string>* settings_of(const ModelKwarg& kwarg, const yaml::Node& said) {
  const std::optional<double> number = yaml::number_of(said);
  for (const auto& [value, settings] : kwarg.values)
    if (value == said.text || (number && number == yaml::number_of({.kind = yaml::Kind::scalar, .text = value})))
      return &settings;
  return nullptr;
}

// false: it is no value for this key.
bool apply_model_kwarg(schema::Acting& on, const ModelKwarg& kwarg, const std::string& key, const yaml::Node& said) {
  ModelConfig& model = on.config.model;
  if (!kwarg.is_file) {
    const auto* settings = said.kind == yaml::Kind::scalar ? settings_of(kwarg, said) : nullptr;
    if (settings != nullptr) {
      for (const auto& [setting, text] : *settings) model.given.try_emplace(setting, given_at(on, text, said.place));
    } else if (!yaml::asks_for_nothing(said)) {
      std::vector<std::string> values;
      for (const auto& [value, meant] : kwarg.values) values.push_back(value);
      on.problems.push_back(fmt::format("{}: {} is not supported: of this model it may be {}", key,
                                        yaml::describe(said), fmt::join(values, " or ")));
    }
    return true;
  }
  if (yaml::asks_for_nothing(said)) return true;
  if (said.kind != yaml::Kind::scalar) return false;
  for (const std::string& name : kwarg.files) {
    if (name != "name_or_path")
      model.given.try_emplace(name, given_at(on, said.text, said.place));
    else if (model.name_or_path.extension() != ".safetensors")  // a file there is what counts, as in ai-toolkit
      model.name_or_path = said.text;
  }
  return true;
}

}  // namespace

GivenValue given_at(const schema::Acting& on, const std::string& text, const yaml::Place& place) {
  return {.text = text, .source = std::string(on.file), .line = place.line, .column = place.column};
}

void apply_arch(schema::Acting& on, const std::string& name, const yaml::Node& value) {
  if (on.arch == nullptr) return;
  Config& config = on.config;
  std::string known = name;
  std::vector<const PluginKeys*> owners = having(*on.arch, known);
  if (owners.empty()) owners = having(*on.arch, known = name.substr(0, name.find(':')));
  if (owners.empty()) {
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
  // A name that several plugins have chooses none of them, and says the same of the model of each.
  if (config.plugin.empty() && owners.size() == 1) config.plugin = owners.front()->plugin;
  if (!config.plugin.empty()) std::erase_if(owners, [&](const auto* owner) { return owner->plugin != config.plugin; });
  if (owners.empty()) return;
  for (const auto& [setting, text] : owners.front()->arch.at(known))
    config.model.given.try_emplace(setting, given_at(on, text, value.place));
}

void apply_model_kwargs(schema::Acting& on, const yaml::Node& value) {
  if (value.kind != yaml::Kind::map && yaml::asks_for_nothing(value)) return;
  ModelConfig& model = on.config.model;
  const PluginKeys none;
  const PluginKeys* plugin = &none;
  if (on.arch != nullptr)
    for (const PluginKeys& keys : *on.arch)
      if (keys.plugin == on.config.plugin || keys.experts.said(model) != nullptr) plugin = &keys;
  const Experts* const experts = &plugin->experts;
  std::vector<Expert> trained = experts->each;
  const auto refuse = [&] {
    on.problems.emplace_back(
        "not supported: give settings of the model by their own keys: lora-host plugins --verbose lists them");
  };
  if (value.kind != yaml::Kind::map) return refuse();
  for (const auto& [key, said] : value.entries) {
    if (const auto known = plugin->model_kwargs.find(key.text); known != plugin->model_kwargs.end()) {
      if (!apply_model_kwarg(on, known->second, key.text, said)) return refuse();
      continue;
    }
    constexpr std::string_view train = "train_";
    const Expert* const expert =
        key.text.starts_with(train) ? experts->find(std::string_view(key.text).substr(train.size())) : nullptr;
    if (expert == nullptr && !yaml::asks_for_nothing(said)) return refuse();
    if (expert != nullptr && !on.flag(said).value_or(true))
      std::erase_if(trained, [&](const Expert& one) { return one.name == expert->name; });
  }
  if (!experts->wanted_together(model)) return;
  if (trained.empty())
    on.problems.emplace_back("no expert of the model is left to train");
  else if (trained.size() == 1)
    model.given[experts->setting].text = trained.front().word;
  else if (trained.size() != experts->each.size())
    on.problems.push_back(
        fmt::format("{} of {} experts are left: train all of them, or one", trained.size(), experts->each.size()));
}

}  // namespace lh
