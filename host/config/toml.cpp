// Walks the tables of toml++ and keeps their places.
#include "config/toml.h"

#include <fmt/core.h>

#include <algorithm>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace lh::toml_file {
namespace {

using yaml::Kind;
using yaml::Node;

yaml::Place place_of(const toml::source_region& at) {
  return {static_cast<int>(at.begin.line), static_cast<int>(at.begin.column)};
}

class Walk {
 public:
  explicit Walk(std::vector<yaml::Problem>& problems) : problems_(problems) {}

  Node node(const toml::node& from, int depth) {
    Node to{.place = place_of(from.source())};
    if (depth > yaml::max_depth) {
      problems_.push_back({to.place, fmt::format("nested deeper than {} levels", yaml::max_depth)});
    } else if (const toml::table* table = from.as_table()) {
      to.kind = Kind::map;
      for (const auto& [key, value] : *table)
        to.entries.emplace_back(
            Node{.kind = Kind::scalar, .place = place_of(key.source()), .text = std::string(key.str())},
            node(value, depth + 1));
      std::ranges::stable_sort(to.entries, {}, [](const auto& entry) { return entry.first.place; });
    } else if (const toml::array* array = from.as_array()) {
      to.kind = Kind::list;
      for (const toml::node& item : *array) to.items.push_back(node(item, depth + 1));
    } else {
      to.kind = Kind::scalar;
      to.quoted = from.is_string();
      to.text = text(from, to.place);
    }
    return to;
  }

 private:
  std::string text(const toml::node& from, yaml::Place place) {
    if (from.is_string()) return from.as_string()->get();
    if (from.is_integer()) return fmt::format("{}", from.as_integer()->get());
    if (from.is_floating_point()) return fmt::format("{}", from.as_floating_point()->get());
    if (from.is_boolean()) return from.as_boolean()->get() ? "true" : "false";
    problems_.push_back({place, "no key takes a date or a time"});
    return "";
  }

  std::vector<yaml::Problem>& problems_;
};

}  // namespace

Node parse(const std::string& text, std::vector<yaml::Problem>& problems) {
  if (text.size() > static_cast<size_t>(yaml::max_bytes)) {
    problems.push_back({{}, fmt::format("{} bytes, expected at most {}", text.size(), yaml::max_bytes)});
    return {.kind = Kind::map};
  }
  try {
    const toml::table table = toml::parse(std::string_view(text));
    return Walk(problems).node(table, 0);
  } catch (const toml::parse_error& error) {
    problems.push_back({place_of(error.source()), fmt::format("not TOML: {}", error.description())});
    return {.kind = Kind::map};
  }
}

}  // namespace lh::toml_file
