// Matches keys against patterns with holes, and fills the holes of the other spelling.
#include "io/key_map.h"

#include <algorithm>
#include <stdexcept>

namespace lh {
namespace {

constexpr std::string_view weight_suffix = ".weight";

// The module of a rule's exact key, "" when the key is no weight.
std::string without_weight(std::string_view key) {
  return key.ends_with(weight_suffix) ? std::string(key.substr(0, key.size() - weight_suffix.size())) : std::string();
}

}  // namespace

KeyPattern::KeyPattern(std::string_view text) {
  while (!text.empty()) {
    const size_t open = text.find('{');
    if (open > 0) parts_.push_back({std::string(text.substr(0, open))});
    if (open == std::string_view::npos) break;
    const size_t close = text.find('}', open);
    if (close == std::string_view::npos || close == open + 1) throw std::invalid_argument("'{' without a name and '}'");
    parts_.push_back({std::string(text.substr(open + 1, close - open - 1)), true});
    text.remove_prefix(close + 1);
  }
}

std::vector<std::string> KeyPattern::holes() const {
  std::vector<std::string> names;
  for (const Part& part : parts_)
    if (part.hole) names.push_back(part.text);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool KeyPattern::match(size_t index, std::string_view rest, Values& values) const {
  if (index == parts_.size()) return rest.empty();
  const Part& part = parts_[index];
  if (!part.hole) return rest.starts_with(part.text) && match(index + 1, rest.substr(part.text.size()), values);
  if (const auto known = values.find(part.text); known != values.end()) {
    const std::string value = known->second;
    return rest.starts_with(value) && match(index + 1, rest.substr(value.size()), values);
  }
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  size_t length = part.text == "*" ? rest.size() : digits;
  const size_t shortest = part.text == "*" ? 1 : std::max<size_t>(digits, 1);  // numbers are taken whole
  for (; length >= shortest; --length) {
    values[part.text] = rest.substr(0, length);
    if (match(index + 1, rest.substr(length), values)) return true;
    values.erase(part.text);
  }
  return false;
}

std::optional<KeyPattern::Values> KeyPattern::match(std::string_view key) const {
  // Every key of a file meets every pattern of every plugin, and nearly all differ in the text at an end.
  if (!parts_.empty() && !parts_.front().hole && !key.starts_with(parts_.front().text)) return std::nullopt;
  if (!parts_.empty() && !parts_.back().hole && !key.ends_with(parts_.back().text)) return std::nullopt;
  Values values;
  if (!match(0, key, values)) return std::nullopt;
  return values;
}

std::string KeyPattern::fill(const Values& values) const {
  std::string text;
  for (const Part& part : parts_) text += part.hole ? values.at(part.text) : part.text;
  return text;
}

KeyMap::KeyMap(const std::vector<KeyRule>& rules) {
  for (const KeyRule& rule : rules) {
    Compiled compiled{rule, KeyPattern(rule.native), {}};
    for (const std::string& source : rule.diffusers) compiled.sources.emplace_back(source);
    rules_.push_back(std::move(compiled));
  }
}

std::vector<KeyMap::Native> KeyMap::native(const std::string& key, const RowsPerColumn& rows_per_column) const {
  if (rules_.empty()) return {Native{nullptr, 0, key}};
  const size_t dot = key.rfind('.');
  const std::string suffix = dot == std::string::npos ? std::string() : key.substr(dot);
  const std::string module = key.substr(0, dot);
  const bool parameter = suffix == weight_suffix || suffix == ".bias";
  for (auto rule = rules_.begin(); rule != rules_.end(); ++rule) {
    const Compiled& compiled = *rule;
    const bool exact = compiled.rule.exact;
    if (!exact && !parameter) continue;
    for (size_t i = 0; i < compiled.sources.size(); ++i) {
      const auto values = compiled.sources[i].match(exact ? key : module);
      if (!values) continue;
      if (compiled.rule.when_rows != 0 && rows_per_column(module) != compiled.rule.when_rows) continue;
      std::vector<Native> all;  // the rules of all parts stand in a row
      for (auto part = rule; part != rule + compiled.rule.parts; ++part)
        all.push_back({&part->rule, i, part->native.fill(*values) + (exact ? std::string() : suffix)});
      return all;
    }
  }
  return {};
}

std::optional<KeyMap::Diffusers> KeyMap::diffusers(const std::string& module, int64_t rows_per_column) const {
  std::vector<Diffusers> all = all_diffusers(module, rows_per_column);
  if (all.empty()) return std::nullopt;
  return std::move(all.front());
}

std::vector<KeyMap::Diffusers> KeyMap::all_diffusers(const std::string& module, int64_t rows_per_column) const {
  if (rules_.empty()) return {Diffusers{nullptr, {module}}};
  std::vector<Diffusers> all;
  for (const Compiled& compiled : rules_) {
    const bool exact = compiled.rule.exact;
    const auto values = compiled.native.match(exact ? module + std::string(weight_suffix) : module);
    if (!values || compiled.rule.parts > 1 ||
        (compiled.rule.when_rows != 0 && compiled.rule.when_rows != rows_per_column))
      continue;
    Diffusers found{&compiled.rule, {}};
    for (const KeyPattern& source : compiled.sources) {
      const std::string name = source.fill(*values);
      found.modules.push_back(exact ? without_weight(name) : name);
    }
    if (std::ranges::none_of(found.modules, &std::string::empty)) all.push_back(std::move(found));
  }
  return all;
}

}  // namespace lh
