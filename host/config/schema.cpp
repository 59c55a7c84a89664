#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace lh::schema {
namespace {

// Insertions, deletions, substitutions and swaps of neighbours between two words.
int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({row[j - 1] + 1, last[j] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last.back();
}

std::string_view section_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == path.npos ? "" : path.substr(0, dot);
}

std::string_view leaf_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == path.npos ? path : path.substr(dot + 1);
}

struct TypeName {
  std::string operator()(std::string*) const { return "text"; }
  std::string operator()(std::filesystem::path*) const { return "path"; }
  std::string operator()(int64_t*) const { return "integer"; }
  std::string operator()(double*) const { return "number"; }
  std::string operator()(bool*) const { return "true or false"; }
  std::string operator()(std::optional<double>*) const { return "number"; }
  std::string operator()(Texts*) const { return "list of texts"; }
  std::string operator()(Integers*) const { return "integer or list of integers"; }
  std::string operator()(Numbers*) const { return "mapping of numbers"; }
  std::string operator()(NumberLists*) const { return "mapping of numbers or lists of numbers"; }
};

}  // namespace

bool Range::holds(double value) const {
  return (above ? value > low : value >= low) && (below ? value < high : value <= high);  // false for NaN
}

std::string Range::text() const {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto number = [](double x) {
    return x < 1e15 && x == static_cast<double>(static_cast<int64_t>(x)) ? fmt::format("{}", static_cast<int64_t>(x))
                                                                         : fmt::format("{}", x);
  };
  if (high == infinity)
    return low == -infinity ? "" : fmt::format("{} {}", above ? "more than" : "at least", number(low));
  if (!above && !below) return fmt::format("{} to {}", number(low), number(high));
  return fmt::format("{} {} and {} {}", above ? "more than" : "at least", number(low), below ? "less than" : "at most",
                     number(high));
}

const Key* find(std::string_view path) {
  for (const Alias& alias : aliases())
    if (alias.path == path) path = alias.key;
  for (const Key& key : keys())
    if (key.path == path) return &key;
  return nullptr;
}

std::string nearest_of(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.size() > 64) return "";
  int64_t best = std::max<int64_t>(1, static_cast<int64_t>(word.size()) / 3) + 1;
  std::string_view found;
  for (const std::string_view candidate : candidates) {
    const int64_t distance = edit_distance(word, candidate);
    if (distance >= best) continue;
    best = distance;
    found = candidate;
  }
  return std::string(found);
}

std::string nearest(std::string_view path) {
  std::vector<std::string_view> here;  // leaves in the same section
  std::vector<std::string_view> sections;
  for (const Key& key : keys()) {
    const std::string_view section = section_of(key.path);
    if (section == section_of(path)) here.push_back(leaf_of(key.path));
    if (!section.empty()) sections.push_back(section.starts_with("datasets") ? "datasets" : section);
  }
  if (section_of(path).empty()) here.insert(here.end(), sections.begin(), sections.end());
  const auto in_section = [&](std::string_view leaf) {
    const std::string_view section = section_of(path);
    return section.empty() ? std::string(leaf) : fmt::format("{}.{}", section, leaf);
  };
  for (const Key& key : keys())  // the right key in the wrong section
    if (leaf_of(key.path) == leaf_of(path)) return std::string(key.path);
  const std::string leaf = nearest_of(leaf_of(path), here);
  return leaf.empty() ? "" : in_section(leaf);
}

std::string type_name(const Key& key) {
  Config config;
  DatasetConfig dataset;
  return std::visit(TypeName{}, key.field(config, dataset));
}

}  // namespace lh::schema
