// Looks a user's keys up in those of the model's plugin and says what may have been meant.
#include "config/model_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/nearest.h"
#include "config/scalar.h"
#include "config/schema.h"
#include "config/value.h"
#include "core/error.h"

namespace lh {
namespace {

// What is wrong with the value of a setting; empty: nothing.
std::string problem_of(const ModelKey& key, const std::string& text) {
  const yaml::Node node{.kind = yaml::Kind::scalar, .text = text};
  switch (key.kind) {
    case ModelKey::Kind::file: {
      const std::string wrong = schema::problem_of_path(text);
      return wrong.empty() ? "" : fmt::format("{}, found {}", wrong, text);
    }
    case ModelKey::Kind::text: return "";
    case ModelKey::Kind::flag: return yaml::flag_of(node) ? "" : "expected true or false, found " + text;
    case ModelKey::Kind::number: {
      const auto number = yaml::number_of(node);
      if (!number) return "expected a number, found " + text;
      return key.range.holds(*number) ? "" : fmt::format("must be {}, found {}", key.range.text(), text);
    }
    case ModelKey::Kind::choice: break;
  }
  if (std::ranges::find(key.choices, text) != key.choices.end()) return "";
  const std::vector<std::string_view> words(key.choices.begin(), key.choices.end());
  const std::string near = nearest_of(text, words);
  return fmt::format("must be {}, found {}{}", fmt::join(words, ", "), text,
                     near.empty() ? "" : fmt::format(". Did you mean {}?", near));
}

// Flags reach a plugin in one spelling, and numbers without a plus sign.
std::string spelled(const ModelKey& key, const std::string& text) {
  if (key.kind == ModelKey::Kind::flag)
    return *yaml::flag_of({.kind = yaml::Kind::scalar, .text = text}) ? "true" : "false";
  return key.kind == ModelKey::Kind::number && text.starts_with('+') ? text.substr(1) : text;
}

// Why the plugin does not have the key.
std::string not_of(const PluginKeys& plugin, const std::string& name, std::span<const PluginKeys> all) {
  std::vector<std::string> owners, known;
  for (const PluginKeys& other : all)
    if (other.find(name) != nullptr) owners.push_back(other.plugin);
  if (!owners.empty())
    return fmt::format("belongs to plugin {}, this model is of plugin {}. Remove it", fmt::join(owners, ", "),
                       plugin.plugin);
  const std::string text = unknown_model_key(name, {&plugin, 1});
  if (text.find('?') != text.npos) return text;
  for (const ModelKey& key : plugin.keys) known.push_back(key.name);
  return fmt::format("unknown key. Plugin {} has {}", plugin.plugin,
                     known.empty() ? "none of its own" : fmt::format("{}", fmt::join(known, ", ")));
}

}  // namespace

std::string GivenValue::place() const {
  if (source.empty()) return "";
  return line == 0 ? source + ": " : fmt::format("{}:{}:{}: ", source, line, column);
}

std::string ModelKey::value_name() const {
  switch (kind) {
    case Kind::file: return "path";
    case Kind::choice: return fmt::format("{}", fmt::join(choices, "|"));
    case Kind::number: return range.text().empty() ? "number" : "number, " + range.text();
    case Kind::flag: return "true|false";
    case Kind::text: break;
  }
  return "text";
}

const ModelKey* PluginKeys::find(std::string_view name) const {
  const auto found = std::ranges::find(keys, name, &ModelKey::name);
  return found == keys.end() ? nullptr : &*found;
}

const PluginKeys* of_experts_together(std::span<const PluginKeys> plugins, const ModelConfig& config,
                                      const std::string& plugin) {
  const auto found = std::ranges::find_if(plugins, [&](const PluginKeys& keys) {
    return keys.experts.wanted_together(config) && (plugin.empty() || plugin == keys.plugin);
  });
  return found == plugins.end() ? nullptr : &*found;
}

bool is_free_model_key(const std::string& name) {
  return !name.starts_with("is_") && !schema::is_taken("model." + name);
}

std::string unknown_model_key(const std::string& name, std::span<const PluginKeys> plugins) {
  std::vector<std::string_view> more;
  for (const PluginKeys& plugin : plugins)
    for (const ModelKey& key : plugin.keys) more.push_back(key.name);
  const std::string near = schema::nearest("model." + name, more);
  return near.empty() ? "unknown key: no plugin has it, and lora-host plugins --verbose lists what they have"
                      : fmt::format("unknown key. Did you mean {}?", near);
}

ModelValues read_given(const ModelConfig& config, const std::string& plugin, std::span<const PluginKeys> all) {
  const PluginKeys& own = *std::ranges::find(all, plugin, &PluginKeys::plugin);
  ModelValues values;
  std::multimap<std::pair<int, int>, std::string> lines;  // in the order of the file
  const ModelKey extras{.name = extras_key};              // of models of every plugin
  for (const auto& [name, value] : config.given) {
    const ModelKey* key = name == extras.name ? &extras : own.find(name);
    const std::string wrong = key == nullptr       ? not_of(own, name, all)
                              : value.text.empty() ? ""
                                                   : problem_of(*key, value.text);
    if (!wrong.empty())
      lines.emplace(std::pair(value.line, value.column), fmt::format("{}model.{}: {}", value.place(), name, wrong));
    else if (value.text.empty())
      continue;
    else if (key->kind == ModelKey::Kind::file)
      values.files[name] = schema::expand_home(value.text);
    else
      values.settings[name] = spelled(*key, value.text);
  }
  std::string problems;
  for (const auto& [place, line] : lines) problems += (problems.empty() ? "" : "\n") + line;
  if (!problems.empty()) throw Error(Code::config, problems);
  if (config.with_sound && own.find("sound") != nullptr) values.settings.try_emplace("sound", "true");
  return values;
}

}  // namespace lh
