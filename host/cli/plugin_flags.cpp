#include "cli/plugin_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace lh {
namespace {

constexpr std::string_view file_ending = "_path";

// "PATH", "dev|schnell", "NUMBER".
std::string placeholder(const ModelKey& key) {
  if (key.kind == ModelKey::Kind::choice || key.kind == ModelKey::Kind::flag) return key.value_name();
  std::string word = key.value_name();
  word = word.substr(0, word.find(','));
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return word;
}

}  // namespace

std::string flag_of(const std::string& key) {
  std::string flag = "--" + (key.ends_with(file_ending) ? key.substr(0, key.size() - file_ending.size()) : key);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::map<std::string, std::string> plugin_flags(const std::vector<PluginKeys>& plugins,
                                                const std::function<bool(const std::string&)>& taken) {
  std::map<std::string, std::string> flags;
  for (const PluginKeys& plugin : plugins)
    for (const ModelKey& key : plugin.keys) {
      const std::string flag = flag_of(key.name);
      if (taken(flag)) continue;
      std::string& found = flags[flag];
      if (found.empty() || key.name.ends_with(file_ending)) found = key.name;
    }
  return flags;
}

std::string plugin_flags_summary(const std::vector<PluginKeys>& plugins,
                                 const std::map<std::string, std::string>& flags) {
  std::vector<std::string> names, models;
  for (const auto& [flag, key] : flags) names.push_back(flag);
  for (const PluginKeys& plugin : plugins)
    if (!plugin.keys.empty()) models.push_back(plugin.plugin);
  if (names.empty()) return "";
  return fmt::format("Files and settings of models: {}\n  What they are: --model ID --help, with one of {}\n\n",
                     fmt::join(names, ", "), fmt::join(models, ", "));
}

std::string plugin_flags_help(const std::vector<PluginKeys>& plugins, const std::map<std::string, std::string>& flags) {
  std::string out;
  for (const PluginKeys& plugin : plugins) {
    std::string lines;
    for (const ModelKey& key : plugin.keys) {
      const auto flag = flags.find(flag_of(key.name));
      if (flag == flags.end() || flag->second != key.name) continue;
      const std::string left = fmt::format("{} {}", flag->first, placeholder(key));
      lines += fmt::format("  {:<27} {}{}\n", left, left.size() > 27 ? "\n" + std::string(30, ' ') : "", key.help);
    }
    if (!lines.empty()) out += fmt::format("Files and settings of plugin {}:\n{}\n", plugin.plugin, lines);
  }
  return out;
}

}  // namespace lh
