// One function for each type that a key may have: from YAML into the field, and back into text.
#include "config/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "config/nearest.h"
#include "config/run_settings.h"
#include "config/sample_items.h"
#include "config/scalar.h"
#include "core/lower.h"

namespace lh::schema {
namespace {

using yaml::Kind;
using yaml::Node;

// Stores the value of one node in one field, by the field's type.
class Assign {
 public:
  Assign(const Key& key, const Node& node, std::vector<yaml::Problem>& problems)
      : key_(key), node_(node), problems_(problems) {}

  void operator()(std::string* out) {
    if (node_.kind == Kind::null) return;
    auto text = read_text(node_, "text");
    if (!text) return;
    if (key_.rules.normalize)
      if (const std::string wrong = key_.rules.normalize(*text); !wrong.empty()) return found(node_, wrong);
    if (!key_.rules.choices.empty()) {
      const std::string word = lower(*text);
      const auto choice = std::ranges::find(key_.rules.choices, std::string_view(word), &Choice::spelling);
      if (choice == key_.rules.choices.end()) return wrong_choice(*text);
      text = choice->value;
    }
    *out = std::move(*text);
  }

  void operator()(std::filesystem::path* out) {
    if (node_.kind == Kind::null) return;
    const auto text = read_text(node_, "a path");
    if (!text) return;
    if (const std::string wrong = problem_of_path(*text); !wrong.empty()) return found(node_, wrong);
    *out = expand_home(*text);
  }

  void operator()(int64_t* out) { store_integer(node_, *out); }

  void operator()(double* out) { store_number(node_, *out); }

  void operator()(std::optional<double>* out) {
    double value = 0;
    if (node_.kind != Kind::null && store_number(node_, value)) *out = value;
  }

  void operator()(std::optional<std::string>* out) {
    out->reset();
    if (node_.kind != Kind::null) *out = read_text(node_, "text");
  }

  void operator()(bool* out) {
    if (const auto value = yaml::flag_of(node_))
      *out = *value;
    else
      found(node_, "expected true or false");
  }

  void operator()(Texts* out) {
    out->clear();
    if (node_.kind == Kind::null) return;
    if (node_.kind == Kind::map) return found(node_, "expected a list of texts");
    for (const Node& item : node_.kind == Kind::list ? node_.items : Items{node_}) {
      auto text = read_text(item, "text");
      if (!text) continue;
      if (key_.rules.normalize)
        if (const std::string wrong = key_.rules.normalize(*text); !wrong.empty()) {
          found(item, wrong);
          continue;
        }
      out->push_back(std::move(*text));
    }
  }

  void operator()(Integers* out) {
    Integers values;
    const bool empty = node_.kind == Kind::null || (node_.kind == Kind::list && node_.items.empty());
    if (empty && !key_.rules.nonempty) return out->clear();
    if (empty) return found(node_, "expected at least one integer");
    for (const Node& item : node_.kind == Kind::list ? node_.items : Items{node_}) {
      int64_t value = 0;
      if (store_integer(item, value)) values.push_back(value);
    }
    *out = std::move(values);
  }

  void operator()(Reals* out) {
    Reals values;
    for (const Node& item : node_.kind == Kind::list ? node_.items : Items{node_}) {
      double value = 0;
      if (item.kind != Kind::null && store_number(item, value)) values.push_back(value);
    }
    *out = std::move(values);
  }

  void operator()(Numbers* out) {
    each_entry("a mapping of numbers", [&](const std::string& name, const Node& value) {
      double number = 0;
      if (store_number(value, number, name)) (*out)[name] = number;
    });
  }

  void operator()(GivenOptions* out) {
    if (node_.kind == Kind::null) return;
    if (node_.kind != Kind::map) return found(node_, "expected a mapping of options");
    for (const auto& [name, value] : node_.entries) {
      if (value.kind == Kind::map)
        found(value, name.text + ": expected a value or a list");
      else
        (*out)[name.text] = {.value = value, .key = name.place};
    }
  }

  void operator()(Phases* out) {
    out->clear();
    if (node_.kind == Kind::null) return;
    if (node_.kind != Kind::list) return found(node_, "expected a list of mappings");
    for (const Node& item : node_.items) {
      if (item.kind != Kind::map) return found(item, "expected a mapping such as {until: 500, lr: 1e-4}");
      Phase phase{.place = item.place};
      for (const auto& [name, value] : item.entries) {
        if (name.text != "until")
          phase.settings.entries.emplace_back(name, value);
        else if (const auto until = yaml::integer_of(value); until && *until > (out->empty() ? 0 : out->back().until))
          phase.until = *until;
        else
          found(value, out->empty() ? "until: expected an integer, at least 1"
                                    : fmt::format("until: expected an integer above {}, where the phase before it ends",
                                                  out->back().until));
      }
      if (!out->empty() && out->back().until == 0)
        problems_.push_back({item.place, "the phase before this one has no `until`: it ends with the run"});
      TrainSection scratch;
      change_settings(scratch, phase.settings, "", problems_);
      out->push_back(std::move(phase));
    }
  }

  void operator()(Samples* out) { *out = read_samples(node_, problems_); }

  // Where each path stands is kept: whether there is such a key is known when the model is.
  void operator()(ImagePaths* out) {
    each_entry("a mapping of paths", [&](const std::string& name, const Node& value) {
      const bool many = value.kind == Kind::list && key_.rules.lists;
      std::vector<GivenValue> paths;
      for (const Node& item : many ? value.items : Items{value}) {
        const auto text = read_text(item, "a path");
        if (!text) return;
        if (const std::string wrong = text->empty() ? "expected a path" : problem_of_path(*text); !wrong.empty())
          return found(item, wrong);
        paths.push_back({.text = *text, .line = item.place.line, .column = item.place.column});
      }
      if (paths.empty()) return found(value, "expected at least one path");
      (*out)[name] = std::move(paths);
    });
  }

 private:
  using Items = std::vector<Node>;

  void found(const Node& node, const std::string& expected) {
    problems_.push_back({node.place, fmt::format("{}, found {}", expected, yaml::describe(node))});
  }

  std::optional<std::string> read_text(const Node& node, const std::string& what) {
    if (node.kind == Kind::scalar) return node.text;
    found(node, "expected " + what);
    return std::nullopt;
  }

  void wrong_choice(const std::string& text) {
    std::vector<std::string_view> all, shown;  // a value's other spellings are not worth listing
    for (const Choice& choice : key_.rules.choices) {
      all.push_back(choice.spelling);
      if (choice.spelling == choice.value) shown.push_back(choice.spelling);
    }
    const std::string near = nearest_of(lower(text), all);
    problems_.push_back(
        {node_.place, fmt::format("must be {}, found {}{}", fmt::join(shown, ", "), yaml::describe(node_),
                                  near.empty() ? "" : fmt::format(". Did you mean {}?", near))});
  }

  bool in_range(const Node& node, double value, const std::string& prefix) {
    if (!(std::abs(value) <= std::numeric_limits<float>::max()))
      return found(node, fmt::format("{}must be a number that float32 holds", prefix)), false;
    if (key_.rules.range.holds(value)) return true;
    found(node, fmt::format("{}must be {}", prefix, key_.rules.range.text()));
    return false;
  }

  bool store_integer(const Node& node, int64_t& out) {
    const auto value = yaml::integer_of(node);
    if (!value) return found(node, "expected an integer"), false;
    if (!in_range(node, static_cast<double>(*value), "")) return false;
    out = *value;
    return true;
  }

  bool store_number(const Node& node, double& out, const std::string& name = "") {
    const std::string prefix = name.empty() ? "" : name + ": ";
    const auto value = yaml::number_of(node);
    if (!value) return found(node, prefix + "expected a number"), false;
    if (!in_range(node, *value, prefix)) return false;
    out = *value;
    return true;
  }

  template <typename Function>
  void each_entry(const std::string& expected, Function store) {
    if (node_.kind == Kind::null) return;
    if (node_.kind != Kind::map) return found(node_, "expected " + expected);
    for (const auto& [name, value] : node_.entries) {
      if (!key_.rules.names.empty() && std::ranges::find(key_.rules.names, name.text) == key_.rules.names.end()) {
        const std::string near = nearest_of(name.text, key_.rules.names);
        problems_.push_back(
            {name.place, fmt::format("unknown key {}. {}", name.text,
                                     near.empty() ? fmt::format("Known: {}", fmt::join(key_.rules.names, ", "))
                                                  : fmt::format("Did you mean {}?", near))});
      } else {
        store(name.text, value);
      }
    }
  }

  const Key& key_;
  const Node& node_;
  std::vector<yaml::Problem>& problems_;
};

// Always in double quotes: no text then looks like a number, a boolean or YAML syntax.
std::string quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)  // which a file may hold only like this
      out += fmt::format("\\x{:02x}", c);
    else
      out += c;
  }
  return out + "\"";
}

struct Print {
  std::string operator()(const std::string* text) const { return text->empty() ? "" : quote(*text); }
  std::string operator()(const std::filesystem::path* path) const { return path->empty() ? "" : quote(path->string()); }
  std::string operator()(const int64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const { return fmt::format("{}", *value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::optional<double>* value) const { return *value ? fmt::format("{}", **value) : ""; }
  std::string operator()(const std::optional<std::string>* text) const { return *text ? quote(**text) : ""; }
  std::string operator()(const Texts* texts) const {
    std::vector<std::string> quoted;
    for (const std::string& text : *texts) quoted.push_back(quote(text));
    return texts->empty() ? "" : fmt::format("[{}]", fmt::join(quoted, ", "));
  }
  std::string operator()(const Samples* items) const { return print_samples(*items); }
  std::string operator()(const Integers* values) const { return fmt::format("[{}]", fmt::join(*values, ", ")); }
  std::string operator()(const Reals* values) const {
    return values->empty() ? "" : fmt::format("[{}]", fmt::join(*values, ", "));
  }
  std::string operator()(const Numbers* values) const {
    std::vector<std::string> entries;
    for (const auto& [name, value] : *values) entries.push_back(fmt::format("{}: {}", quote(name), value));
    return entries.empty() ? "" : fmt::format("{{{}}}", fmt::join(entries, ", "));
  }
  std::string operator()(const GivenOptions* options) const {
    std::vector<std::string> entries;
    for (const auto& [name, option] : *options)
      entries.push_back(fmt::format("{}: {}", quote(name), (*this)(option.value)));
    return entries.empty() ? "" : fmt::format("{{{}}}", fmt::join(entries, ", "));
  }
  std::string operator()(const ImagePaths* values) const {
    std::vector<std::string> entries;
    for (const auto& [name, list] : *values) {
      std::vector<std::string> quoted;
      for (const GivenValue& path : list) quoted.push_back(quote(path.text));
      const std::string all = fmt::format("{}", fmt::join(quoted, ", "));
      entries.push_back(fmt::format("{}: {}", quote(name), list.size() == 1 ? all : "[" + all + "]"));
    }
    return entries.empty() ? "" : fmt::format("{{{}}}", fmt::join(entries, ", "));
  }
  std::string operator()(const Phases* phases) const {
    std::vector<std::string> all;
    for (const Phase& phase : *phases) {
      Node mapping = phase.settings;
      if (phase.until > 0)
        mapping.entries.insert(mapping.entries.begin(), {Node{.kind = Kind::scalar, .text = "until"},
                                                         {.kind = Kind::scalar, .text = std::to_string(phase.until)}});
      all.push_back((*this)(mapping));
    }
    return all.empty() ? "" : fmt::format("[{}]", fmt::join(all, ", "));
  }
  std::string operator()(const Node& node) const {
    if (node.kind == Kind::null) return "null";
    if (node.kind == Kind::map) {
      std::vector<std::string> entries;
      for (const auto& [name, value] : node.entries)
        entries.push_back(fmt::format("{}: {}", quote(name.text), (*this)(value)));
      return fmt::format("{{{}}}", fmt::join(entries, ", "));
    }
    if (node.kind == Kind::list) {
      std::vector<std::string> items;
      for (const Node& item : node.items) items.push_back((*this)(item));
      return fmt::format("[{}]", fmt::join(items, ", "));
    }
    return yaml::number_of(node) || yaml::flag_of(node) ? node.text : quote(node.text);
  }
};

}  // namespace

void assign(const Key& key, Field field, const yaml::Node& node, std::vector<yaml::Problem>& problems) {
  Assign store(key, node, problems);
  std::visit(store, field);
}

std::string print_value(const Field& field) { return std::visit(Print{}, field); }

std::string print_node(const yaml::Node& node) { return Print{}(node); }

bool has_control(const std::string& text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

std::string problem_of_path(const std::string& path) {
  if (path.find("${") != path.npos) return "environment variables are not expanded: write the path";
  return has_control(path) ? "must be a path without line breaks and control characters" : "";
}

std::filesystem::path expand_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (!home || (path != "~" && !path.starts_with("~/"))) return path;
  return home + path.substr(1);
}

}  // namespace lh::schema
