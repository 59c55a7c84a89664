// Finds rows of the tables of keys, and the nearest one for a word that is in none.
#include "config/schema.h"

#include <fmt/core.h>

#include <algorithm>

#include "config/nearest.h"

namespace lh::schema {
namespace {

std::string_view section_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == path.npos ? "" : path.substr(0, dot);
}

std::string_view leaf_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == path.npos ? path : path.substr(dot + 1);
}

// Does `fits` hold for the path of a row, in any of the tables?
template <typename Fits>
bool any_row(Fits fits) {
  const auto in = [&](auto table) {
    return std::ranges::any_of(table, [&](const auto& row) { return fits(row.path); });
  };
  return in(keys()) || in(aliases()) || in(entry_aliases()) || in(ignored()) || in(refused()) || in(switches()) ||
         in(option_aliases());
}

struct TypeName {
  std::string operator()(std::string*) const { return "text"; }
  std::string operator()(std::filesystem::path*) const { return "path"; }
  std::string operator()(int64_t*) const { return "integer"; }
  std::string operator()(double*) const { return "number"; }
  std::string operator()(bool*) const { return "true or false"; }
  std::string operator()(std::optional<double>*) const { return "number"; }
  std::string operator()(std::optional<std::string>*) const { return "text"; }
  std::string operator()(Texts*) const { return "list of texts"; }
  std::string operator()(Integers*) const { return "integer or list of integers"; }
  std::string operator()(Reals*) const { return "number or list of numbers"; }
  std::string operator()(Numbers*) const { return "mapping of numbers"; }
  std::string operator()(ImagePaths*) const { return "mapping of paths or lists of paths"; }
  std::string operator()(GivenOptions*) const { return "mapping of options"; }
  std::string operator()(Phases*) const { return "list of mappings"; }
  std::string operator()(Samples*) const { return "list of texts or mappings"; }
};

}  // namespace

const Key* find(std::string_view path) {
  for (const Alias& alias : aliases())
    if (alias.path == path) path = alias.key;
  for (const Key& key : keys())
    if (key.path == path) return &key;
  return nullptr;
}

bool is_section(std::string_view path) {
  const std::string prefix = fmt::format("{}.", path);
  return any_row([&](std::string_view row) { return row.starts_with(prefix); });
}

bool is_taken(std::string_view path) {
  return is_section(path) || any_row([&](std::string_view row) { return row == path; });
}

std::string nearest(std::string_view path, std::span<const std::string_view> more) {
  std::vector<std::string_view> here(more.begin(), more.end());  // leaves in the same section
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
