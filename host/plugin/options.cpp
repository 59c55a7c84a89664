#include "plugin/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "config/nearest.h"
#include "config/scalar.h"
#include "core/error.h"

namespace lh {
namespace {

using yaml::Kind;
using yaml::Node;

struct Wrong {
  yaml::Place place;
  std::string text;
};

constexpr uint32_t known_flags = LH_OPTION_MIN | LH_OPTION_MAX | LH_OPTION_ABOVE | LH_OPTION_BELOW | LH_OPTION_NULLABLE;

Range range_of(const lh_option& option) {
  Range range;
  if ((option.flags & LH_OPTION_MIN) != 0) range.low = option.min, range.above = (option.flags & LH_OPTION_ABOVE) != 0;
  if ((option.flags & LH_OPTION_MAX) != 0) range.high = option.max, range.below = (option.flags & LH_OPTION_BELOW) != 0;
  return range;
}

// Reads one value; throws Wrong.
class Reading {
 public:
  explicit Reading(const OptionSpec& spec) : spec_(spec) {}

  OptionValues::Value read(const Node& node) const {
    switch (spec_.type) {
      case LH_OPTION_FLOAT: return number(node);
      case LH_OPTION_INT: return integer(node);
      case LH_OPTION_BOOL: return flag(node);
      case LH_OPTION_CHOICE: return choice(node);
      default: return numbers(node);
    }
  }

 private:
  [[noreturn]] void wrong(const Node& node, const std::string& expected) const {
    throw Wrong{node.place, fmt::format("{}, found {}", expected, yaml::describe(node))};
  }

  double number(const Node& node) const {
    const auto value = yaml::number_of(node);
    if (!value)
      wrong(node, spec_.range.text().empty() ? "expected a number" : "expected a number, " + spec_.range.text());
    return in_range(node, *value);
  }

  double in_range(const Node& node, double value) const {
    if (!(std::abs(value) <= std::numeric_limits<float>::max())) wrong(node, "must be a number that float32 holds");
    if (!spec_.range.holds(value)) wrong(node, "must be " + spec_.range.text());
    return value;
  }

  int64_t integer(const Node& node) const {
    const auto value = yaml::integer_of(node);
    if (!value) wrong(node, "expected an integer");
    in_range(node, static_cast<double>(*value));
    return *value;
  }

  bool flag(const Node& node) const {
    if (const auto value = yaml::flag_of(node)) return *value;
    wrong(node, "expected true or false");
  }

  std::string choice(const Node& node) const {
    if (node.kind == Kind::scalar && std::ranges::find(spec_.choices, node.text) != spec_.choices.end())
      return node.text;
    const std::vector<std::string_view> words(spec_.choices.begin(), spec_.choices.end());
    const std::string near = node.kind == Kind::scalar ? nearest_of(node.text, words) : "";
    throw Wrong{node.place, fmt::format("must be {}, found {}{}", fmt::join(words, ", "), yaml::describe(node),
                                        near.empty() ? "" : fmt::format(". Did you mean {}?", near))};
  }

  std::vector<double> numbers(const Node& node) const {
    const std::string expected =
        spec_.count == 0 ? "expected a list of numbers" : fmt::format("expected a list of {} numbers", spec_.count);
    if (node.kind != Kind::list) wrong(node, expected);
    if (node.items.empty() || (spec_.count != 0 && node.items.size() != spec_.count))
      throw Wrong{node.place, fmt::format("{}, found {}", expected, node.items.size())};
    std::vector<double> values;
    for (const Node& item : node.items) values.push_back(number(item));
    return values;
  }

  const OptionSpec& spec_;
};

// A default as the descriptor writes it.
Node node_of(const std::string& text, const std::string& owner, const std::string& name) {
  std::vector<yaml::Problem> problems;
  Node document = yaml::parse("value: " + text + "\n", problems);
  const Node* value = problems.empty() ? document.find("value") : nullptr;
  if (value == nullptr) fail(Code::plugin, "{}: the default of option '{}' cannot be read: {}", owner, name, text);
  return *value;
}

std::string unknown(const std::string& name, const std::vector<OptionSpec>& specs, const std::string& owner) {
  std::vector<std::string_view> names;
  for (const OptionSpec& spec : specs) names.push_back(spec.name);
  const std::string near = nearest_of(name, names);
  if (names.empty()) return fmt::format("{} takes no options", owner);
  return fmt::format(
      "{} has no such option. {}", owner,
      near.empty() ? fmt::format("Known: {}", fmt::join(names, ", ")) : fmt::format("Did you mean {}?", near));
}

}  // namespace

std::string OptionSpec::value_name() const {
  const std::string limits = range.text().empty() ? "" : ", " + range.text();
  switch (type) {
    case LH_OPTION_FLOAT: return "number" + limits;
    case LH_OPTION_INT: return "integer" + limits;
    case LH_OPTION_BOOL: return "true|false";
    case LH_OPTION_CHOICE: return fmt::format("{}", fmt::join(choices, "|"));
    default: return (count == 0 ? "list of numbers" : fmt::format("list of {} numbers", count)) + limits;
  }
}

void OptionValues::add(std::string name, Value value) { values_.emplace_back(std::move(name), std::move(value)); }

std::vector<lh_attr> OptionValues::attrs() const {
  std::vector<lh_attr> out;
  for (const auto& [name, value] : values_) {
    lh_attr attr{.name = name.c_str(), .type = LH_ATTR_I64, .count = 1, .v = {}};
    if (const auto* real = std::get_if<double>(&value))
      attr.type = LH_ATTR_F64, attr.v.f = *real;
    else if (const auto* integer = std::get_if<int64_t>(&value))
      attr.v.i = *integer;
    else if (const auto* flag = std::get_if<bool>(&value))
      attr.v.i = *flag ? 1 : 0;
    else if (const auto* text = std::get_if<std::string>(&value))
      attr.type = LH_ATTR_STRING, attr.v.s = text->c_str();
    else if (const auto* list = std::get_if<std::vector<double>>(&value))
      attr.type = LH_ATTR_F64_LIST, attr.count = static_cast<uint32_t>(list->size()), attr.v.fs = list->data();
    out.push_back(attr);
  }
  return out;
}

std::string OptionValues::joined(std::string_view is, std::string_view between) const {
  std::vector<std::string> entries;
  for (const auto& [name, value] : values_)
    std::visit(
        [&, &name = name](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::vector<double>>)
            entries.push_back(fmt::format("{}{}[{}]", name, is, fmt::join(v, ", ")));
          else
            entries.push_back(fmt::format("{}{}{}", name, is, v));
        },
        value);
  return fmt::format("{}", fmt::join(entries, between));
}

std::string OptionValues::text() const { return joined("=", " "); }

std::string OptionValues::yaml() const { return fmt::format("{{{}}}", joined(": ", ", ")); }

std::vector<OptionSpec> read_options(const lh_option* list, const std::string& owner) {
  std::vector<OptionSpec> specs;
  std::set<std::string> names;
  for (const lh_option* option = list; option != nullptr && option->name != nullptr; ++option) {
    OptionSpec spec{.name = option->name,
                    .type = option->type,
                    .range = range_of(*option),
                    .count = option->count,
                    .nullable = (option->flags & LH_OPTION_NULLABLE) != 0,
                    .otherwise = option->otherwise == nullptr ? "" : option->otherwise,
                    .help = option->help == nullptr ? "" : option->help};
    const auto wrong = [&](const std::string& what) {
      fail(Code::plugin, "{}: option '{}' {}", owner, spec.name, what);
    };
    if (!names.insert(spec.name).second) wrong("is listed twice");
    if (spec.type < LH_OPTION_FLOAT || spec.type > LH_OPTION_FLOATS)
      wrong(fmt::format("has the type {}, expected LH_OPTION_FLOAT to LH_OPTION_FLOATS", spec.type));
    if ((option->flags & ~known_flags) != 0)
      wrong(fmt::format("has flags {:#x} that this host does not know", option->flags));
    if (!(spec.range.low <= spec.range.high)) wrong("has a min above its max");
    for (const char* const* choice = option->choices; choice != nullptr && *choice != nullptr; ++choice)
      spec.choices.emplace_back(*choice);
    if (spec.type == LH_OPTION_CHOICE && spec.choices.empty()) wrong("has no choices");
    if (spec.help.empty()) wrong("has no help");
    if (!spec.otherwise.empty()) {
      try {
        Reading(spec).read(node_of(spec.otherwise, owner, spec.name));
      } catch (const Wrong& problem) {
        wrong(fmt::format("has the default {}: {}", spec.otherwise, problem.text));
      }
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

OptionValues check_options(const std::vector<OptionSpec>& specs, const GivenOptions& given, const std::string& section,
                           const std::string& owner) {
  std::multimap<yaml::Place, std::string> lines;  // in the order of the file
  const auto problem = [&](const GivenOption& at, yaml::Place place, const std::string& name, const std::string& text) {
    const std::string where = at.source.empty() ? "" : fmt::format("{}:{}:{}: ", at.source, place.line, place.column);
    lines.emplace(place, fmt::format("{}{}.{}: {}", where, section, name, text));
  };
  for (const auto& [name, value] : given)
    if (std::ranges::find(specs, name, &OptionSpec::name) == specs.end())
      problem(value, value.key, name, unknown(name, specs, owner));
  OptionValues values;
  for (const OptionSpec& spec : specs) {
    const auto found = given.find(spec.name);
    const bool null = found != given.end() && found->second.value.kind == Kind::null;
    if (null && spec.nullable) continue;
    if (found == given.end() || null) {
      if (!spec.otherwise.empty()) values.add(spec.name, Reading(spec).read(node_of(spec.otherwise, owner, spec.name)));
      continue;
    }
    try {
      values.add(spec.name, Reading(spec).read(found->second.value));
    } catch (const Wrong& wrong) {
      problem(found->second, wrong.place, spec.name, wrong.text);
    }
  }
  std::string text;
  for (const auto& [place, line] : lines) text += (text.empty() ? "" : "\n") + line;
  if (!text.empty()) throw Error(Code::config, text);
  return values;
}

std::vector<std::string> option_lines(const std::vector<OptionSpec>& specs) {
  size_t width = 0;
  for (const OptionSpec& spec : specs) width = std::max(width, spec.name.size());
  std::vector<std::string> lines;
  for (const OptionSpec& spec : specs)
    lines.push_back(fmt::format("{:<{}}  ({}{}{}) {}", spec.name, width, spec.value_name(),
                                spec.nullable ? " or null" : "",
                                spec.otherwise.empty() ? "" : ", default " + spec.otherwise, spec.help));
  return lines;
}

}  // namespace lh
