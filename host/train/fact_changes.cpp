#include "train/fact_changes.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "config/yaml.h"
#include "train/picture_list.h"

namespace lh {
namespace {

constexpr std::string_view nothing = "(not recorded)";
constexpr std::string_view targets_fact = "network.network_kwargs";  // of the names and shapes of what is trained

// What is trained and on which model stays; how, with which data and by which program may change.
bool may_change(std::string_view key) {
  constexpr std::array others = {"datasets",
                                 "device",
                                 arithmetic_fact,
                                 "objective",
                                 "network.dropout",
                                 "network.rank_dropout",
                                 "network.module_dropout",
                                 "network.scale_weight_norms"};
  return key.starts_with("train.") || key.starts_with("plugin ") || std::ranges::find(others, key) != others.end();
}

bool is_digest(std::string_view value) {
  return value.size() == 16 && std::ranges::all_of(value, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

std::string words(const std::string& key, const std::string& then, const std::string& now) {
  if (key == targets_fact) return "network: the saved run has other trained layers or tensors";
  if (is_digest(then) && is_digest(now)) return key + ": the saved run has another file";
  return fmt::format("{}: the saved run has {}, this one {}", key, then, now);
}

std::string value_in(const Facts& facts, const std::string& key) {
  const auto found = facts.find(key);
  return found == facts.end() ? std::string(nothing) : found->second;
}

void add_settings(const std::string& path, const yaml::Node& node, Facts& settings) {
  for (const auto& [key, value] : node.entries)
    add_settings(path.empty() ? key.text : path + "." + key.text, value, settings);
  for (size_t i = 0; i < node.items.size(); ++i) add_settings(fmt::format("{}[{}]", path, i), node.items[i], settings);
  if (node.kind == yaml::Kind::scalar) settings[path] = node.text;
}

}  // namespace

std::vector<FactChange> changed_facts(const Facts& then, const Facts& now) {
  const auto differs = [&](const auto& fact) { return value_in(then, fact.first) != fact.second; };
  // Another rank has other tensors: one of both says it.
  const bool other_network = std::ranges::any_of(now, [&](const auto& fact) {
    return fact.first.starts_with("network.") && fact.first != targets_fact && !may_change(fact.first) && differs(fact);
  });
  std::vector<FactChange> changes;
  for (const auto& [key, value] : now) {
    const std::string before = value_in(then, key);
    if (key == pictures_fact || before == value || (key == targets_fact && other_network)) continue;
    const bool data = key == "datasets" && before != nothing;
    changes.push_back(
        {data ? "datasets: " + changes_of_pictures(value_in(then, pictures_fact), value_in(now, pictures_fact))
              : words(key, before, value),
         may_change(key)});
  }
  return changes;
}

Facts settings_in(const std::string& yaml) {
  std::vector<yaml::Problem> none;
  Facts settings;
  add_settings("", yaml::parse(yaml, none), settings);
  return settings;
}

std::string changed_settings(const std::string& before, const std::string& now) {
  constexpr size_t most = 20;
  const Facts then = settings_in(before), settings = settings_in(now);
  std::vector<std::string> changes;
  for (const auto& [key, value] : settings)
    if (const std::string old = then.contains(key) ? then.at(key) : "(unset)"; old != value)
      changes.push_back(fmt::format("{} {} to {}", key, old, value));
  for (const auto& [key, value] : then)
    if (!settings.contains(key)) changes.push_back(fmt::format("{} {} to (unset)", key, value));
  std::string text;
  for (size_t i = 0; i < changes.size() && i < most; ++i) text += (i == 0 ? "" : ", ") + changes[i];
  return changes.size() > most ? fmt::format("{} and {} more", text, changes.size() - most) : text;
}

}  // namespace lh
