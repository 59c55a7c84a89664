// Each reader checks one node and ends in an error that names source, line and column.
#include "config/strict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "config/nearest.h"
#include "config/scalar.h"

namespace lh::yaml {

Node Strict::parse(const std::string& text) const {
  std::vector<Problem> problems;
  Node root = yaml::parse(text, problems);
  if (problems.empty()) return root;
  std::vector<std::string> lines;
  lines.reserve(problems.size());
  for (const auto& [place, what] : problems)
    lines.push_back(fmt::format("{}:{}:{}: {}", source_, place.line, place.column, what));
  throw Error(code_, fmt::format("{}", fmt::join(lines, "\n")));
}

void Strict::wrong(const Node& node, const std::string& what) const {
  fail(code_, "{}:{}:{}: {}", source_, node.place.line, node.place.column, what);
}

void Strict::check_fields(const Node& node, const std::string& where, Names known) const {
  for (const auto& [key, value] : entries(node, where)) {
    if (std::ranges::find(known, key.text) != known.end()) continue;
    const std::string near = nearest_of(key.text, {known.begin(), known.size()});
    wrong(key, fmt::format("unknown field `{}` in {}.{} Known: {}", key.text, where,
                           near.empty() ? "" : fmt::format(" Did you mean `{}`?", near), fmt::join(known, ", ")));
  }
}

const Node& Strict::need(const Node& node, std::string_view field, const std::string& where) const {
  if (const Node* found = node.find(field)) return *found;
  wrong(node, fmt::format("{} needs the field `{}`", where, field));
}

const std::vector<std::pair<Node, Node>>& Strict::entries(const Node& node, const std::string& what) const {
  if (node.kind != Kind::map) wrong(node, fmt::format("{} must be a mapping, found {}", what, describe(node)));
  return node.entries;
}

const std::vector<Node>& Strict::list(const Node& node, const std::string& what) const {
  if (node.kind != Kind::list) wrong(node, fmt::format("{} must be a list, found {}", what, describe(node)));
  return node.items;
}

std::string Strict::text(const Node& node, const std::string& what) const {
  if (node.kind != Kind::scalar) wrong(node, fmt::format("{} must be text, found {}", what, describe(node)));
  return node.text;
}

std::vector<std::string> Strict::texts(const Node& node, const std::string& what) const {
  if (node.kind == Kind::scalar) return {node.text};
  if (node.kind != Kind::list)
    wrong(node, fmt::format("{} must be a text or a list of texts, found {}", what, describe(node)));
  std::vector<std::string> all;
  for (const Node& item : node.items) all.push_back(text(item, "an item of " + what));
  return all;
}

std::string Strict::choice(const Node& node, const std::string& what, Names known) const {
  std::string value = text(node, what);
  if (std::ranges::find(known, value) == known.end())
    wrong(node, fmt::format("{} `{}` is unknown; known: {}", what, value, fmt::join(known, ", ")));
  return value;
}

bool Strict::flag(const Node& node, const std::string& what) const {
  if (const auto value = flag_of(node)) return *value;
  wrong(node, fmt::format("{} must be true or false, found {}", what, describe(node)));
}

int64_t Strict::integer(const Node& node, const std::string& what, const Range& range) const {
  const auto value = integer_of(node);
  if (value && range.holds(static_cast<double>(*value))) return *value;
  const std::string limits = range.text();
  wrong(node,
        fmt::format("{} must be an integer{}{}, found {}", what, limits.empty() ? "" : ", ", limits, describe(node)));
}

double Strict::number(const Node& node, const std::string& what, const Range& range) const {
  const auto value = number_of(node);
  if (value && range.holds(*value)) return *value;
  const std::string limits = range.text();
  wrong(node,
        fmt::format("{} must be a number{}{}, found {}", what, limits.empty() ? "" : ", ", limits, describe(node)));
}

std::vector<int64_t> Strict::integers(const Node& node, const std::string& what, const Range& range) const {
  std::vector<int64_t> all;
  for (const Node& item : list(node, what)) all.push_back(integer(item, "an item of " + what, range));
  return all;
}

Pattern Strict::pattern(const Node& node, const std::string& what) const {
  const std::string written = text(node, what);
  try {
    return Pattern(written);
  } catch (const std::invalid_argument& error) {
    wrong(node, fmt::format("{}: `{}` is no regular expression: {}", what, written, error.what()));
  }
}

void Strict::set(const Node& node, std::string_view field, std::string& out) const {
  if (const Node* found = node.find(field)) out = text(*found, std::string(field));
}
void Strict::set(const Node& node, std::string_view field, std::vector<std::string>& out) const {
  if (const Node* found = node.find(field)) out = texts(*found, std::string(field));
}
void Strict::set(const Node& node, std::string_view field, bool& out) const {
  if (const Node* found = node.find(field)) out = flag(*found, std::string(field));
}
void Strict::set(const Node& node, std::string_view field, int64_t& out, const Range& range) const {
  if (const Node* found = node.find(field)) out = integer(*found, std::string(field), range);
}
void Strict::set(const Node& node, std::string_view field, double& out, const Range& range) const {
  if (const Node* found = node.find(field)) out = number(*found, std::string(field), range);
}

}  // namespace lh::yaml
