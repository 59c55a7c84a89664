#include "config/module_numbers.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "config/nearest.h"
#include "core/error.h"

namespace lh {
namespace {

// The name, or beginning of names, that a pattern may have meant.
std::string nearest_name(const std::string& pattern, const std::vector<std::string>& modules) {
  std::string plain;  // as far as it is plain text: "double_block" of "double_block\..*"
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.compare(i, 2, "\\.") == 0)
      plain += pattern[++i];
    else if (std::string_view("\\.*+?()[]{}|^$").find(pattern[i]) != std::string_view::npos)
      break;
    else
      plain += pattern[i];
  }
  if (plain.ends_with('.')) plain.pop_back();
  std::set<std::string_view> names;
  for (const std::string& module : modules) {
    const std::string_view name(module);
    for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
      names.insert(name.substr(0, dot));
    names.insert(name);
  }
  return nearest_of(plain, std::vector<std::string_view>(names.begin(), names.end()));
}

}  // namespace

Pattern module_pattern(const std::string& key, const std::string& text) {
  try {
    return Pattern(text);
  } catch (const std::invalid_argument& error) {
    fail(Code::config, "{}: '{}' is no regular expression: {}", key, text, error.what());
  }
}

ModuleNumbers::ModuleNumbers(const char* key, const std::map<std::string, double>& numbers) : key_(key) {
  for (const auto& [text, number] : numbers) all_.push_back({text, module_pattern(key_, text), number});
}

std::optional<double> ModuleNumbers::of(const std::string& module) const {
  const One* found = nullptr;
  for (const One& one : all_)
    if (one.pattern.matches(module) && (found == nullptr || one.text.size() > found->text.size())) found = &one;
  return found == nullptr ? std::nullopt : std::optional(found->number);
}

void ModuleNumbers::require_use(const std::vector<std::string>& modules) const {
  for (const One& one : all_) {
    if (std::ranges::any_of(modules, [&](const std::string& m) { return one.pattern.matches(m); })) continue;
    const std::string near = nearest_name(one.text, modules);
    fail(Code::config, "{}: no trained module is like '{}'.{} One of them is {}", key_, one.text,
         near.empty() ? "" : fmt::format(" Did you mean {}?", near), modules.empty() ? "" : modules.front());
  }
}

}  // namespace lh
