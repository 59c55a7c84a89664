// A Config as YAML, and the table of keys as Markdown.
#include "config/print.h"

#include <fmt/core.h>

#include <algorithm>

#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"

namespace lh {
namespace {

// "train.lr" -> "train", "lr".
std::pair<std::string_view, std::string_view> split(std::string_view path) {
  const size_t dot = path.find('.');
  if (dot == path.npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// A note may have text of the file in it.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text;
}

std::string choices(const schema::Key& key) {
  std::string main, others;
  for (const schema::Choice& choice : key.rules.choices) {
    std::string& list = choice.spelling == choice.value ? main : others;
    list += fmt::format("{}`{}`", list.empty() ? "" : ", ", choice.spelling);
  }
  return others.empty() ? main : fmt::format("{} (also {})", main, others);
}

void describe_key(std::string& out, const schema::Key& key) {
  Config config;
  DatasetConfig dataset;
  const std::string value = schema::print_value(key.field(config, dataset));
  std::string allowed = key.rules.choices.empty() ? schema::type_name(key) : choices(key);
  if (const std::string range = key.rules.range.text(); !range.empty()) allowed += ", " + range;
  out += fmt::format("| `{}` | {} | {} | {} |\n", split(key.path).second, allowed,
                     key.rules.required ? "required"
                     : value.empty()    ? ""
                                        : fmt::format("`{}`", value),
                     key.doc);
}

constexpr const char* plugin_keys_note =
    "\nFurther keys of `model` belong to the model's plugin: files of its components (`vae_path`), and settings "
    "(`variant`).\n`lora-host plugins --verbose` lists them with what they take. On the command line `--vae FILE` is "
    "`vae_path`, and `--variant`\n`variant`. A key that the plugin does not have is an error.\n";

class YamlWriter {
 public:
  // comments: null where every key is written, whatever its value.
  YamlWriter(const Config& given, const KeyComments* comments) : config_(given), comments_(comments) {
    for (const std::string& note : given.notes) out_ += fmt::format("# {}\n", one_line(note));
  }

  std::string write() {
    DatasetConfig unused;
    add_keys("", unused, "", "");
    std::string_view section;
    for (const schema::Key& key : schema::keys()) {
      const std::string_view of = split(key.path).first;
      if (of == section || of.empty()) continue;
      section = of;
      if (section == "datasets[]")
        add_datasets();
      else
        add_section(section, unused);
    }
    return std::move(out_);
  }

 private:
  void add_section(std::string_view section, DatasetConfig& unused) {
    const size_t before = out_.size();
    out_ += fmt::format("{}:\n", section);
    const size_t header = out_.size();
    add_keys(section, unused, "  ", "  ");
    if (section == "model")
      for (auto& [name, value] : config_.model.given)
        if (!value.text.empty())
          out_ += fmt::format("  {}: {}{}\n", name, schema::print_value(&value.text), comment("model." + name));
    if (out_.size() == header) out_.resize(before);
  }

  void add_datasets() {
    if (config_.datasets.empty()) return;
    out_ += "datasets:\n";
    for (DatasetConfig& dataset : config_.datasets) add_keys("datasets[]", dataset, "  - ", "    ");
  }

  std::string comment(const std::string& path) const {
    if (comments_ == nullptr) return {};
    const auto found = comments_->find(path);
    return found == comments_->end() ? "" : "  # " + one_line(found->second);
  }

  // Of a key that is to be written; empty: it is not.
  std::string value_of(const schema::Key& key, DatasetConfig& dataset) {
    std::string value = schema::print_value(key.field(config_, dataset));
    if (comments_ == nullptr || value.empty() || comments_->contains(std::string(key.path))) return value;
    Config standard;
    DatasetConfig standard_dataset;
    return value == schema::print_value(key.field(standard, standard_dataset)) ? "" : value;
  }

  void add_keys(std::string_view wanted, DatasetConfig& dataset, std::string_view first, std::string_view indent) {
    for (const schema::Key& key : schema::keys()) {
      const auto [of, leaf] = split(key.path);
      const std::string value = of == wanted ? value_of(key, dataset) : "";
      if (value.empty()) continue;
      const auto [mapping, name] = split(leaf);
      if (!mapping.empty() && mapping != inner_) out_ += fmt::format("{}{}:\n", first, mapping);
      out_ += fmt::format("{}{}{}: {}{}\n", mapping.empty() ? first : indent, mapping.empty() ? "" : "  ", name, value,
                          comment(std::string(key.path)));
      inner_ = mapping;
      first = indent;
    }
  }

  Config config_;
  const KeyComments* comments_;
  std::string out_;
  std::string_view inner_;  // a mapping within the section
};

}  // namespace

std::string to_yaml(const Config& config) { return YamlWriter(config, nullptr).write(); }

std::string to_yaml(const Config& config, const KeyComments& comments) { return YamlWriter(config, &comments).write(); }

std::string config_reference() {
  std::string out;
  std::string_view section = "none";
  for (const schema::Key& key : schema::keys()) {
    const std::string_view of = split(key.path).first;
    if (section == "model" && of != section) out += plugin_keys_note;
    if (of != section)
      out += fmt::format("{}### {}\n\n| Key | Value | Default | Meaning |\n| --- | --- | --- | --- |\n",
                         out.empty() ? "" : "\n", of.empty() ? "Top level" : fmt::format("`{}`", of));
    section = of;
    describe_key(out, key);
  }
  out += "\n### Other spellings\n\n| Key | Same as |\n| --- | --- |\n";
  for (const schema::Alias& row : schema::aliases()) out += fmt::format("| `{}` | `{}` |\n", row.path, row.key);
  for (const schema::EntryAlias& row : schema::entry_aliases())
    out += fmt::format("| `{}` | `{}.{}`{} |\n", row.path, row.key, row.entry,
                       row.number > 0 ? fmt::format(", `{}_2`, ... by their order", row.entry) : "");
  for (const schema::OptionAlias& row : schema::option_aliases())
    out += fmt::format("| `{}` | `network.network_kwargs.{}`{}{} |\n", row.path, row.option,
                       row.adapter.empty() ? "" : fmt::format(" of {}; without effect for other adapters", row.adapter),
                       row.on.empty() ? "" : fmt::format("; `true` is `{}`", row.on));
  out += "\n### Switches\n\n| Key | Meaning |\n| --- | --- |\n";
  for (const schema::Switch& row : schema::switches()) out += fmt::format("| `{}` | {} |\n", row.path, row.doc);
  out += "\n### Accepted without effect\n\n| Key | Why |\n| --- | --- |\n";
  for (const schema::Ignored& row : schema::ignored()) out += fmt::format("| `{}` | {} |\n", row.path, row.reason);
  out += "\n### Not supported\n\nErrors, unless the value is the one that switches the key off.\n\n";
  out += "| Key | Accepted value | Instead |\n| --- | --- | --- |\n";
  for (const schema::Refused& row : schema::refused())
    out += fmt::format("| `{}` | {} | {} |\n", row.path,
                       row.harmless.empty() ? "false, 0 or empty" : fmt::format("`{}`", row.harmless), row.fix);
  return out;
}

}  // namespace lh
