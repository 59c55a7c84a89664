// Strict YAML to ModelKey.
#include "io/model_key_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

namespace lh {
namespace {

using yaml::Node;
using yaml::Strict;

constexpr std::string_view main_key = "name_or_path";

class Reader {
 public:
  explicit Reader(const Strict& in) : in_(in) {}

  // A key may name the file of several components; one of them says what it is.
  void component(const Node& node) {
    const Node *config = node.find("config"), *help = node.find("help");
    if (config == nullptr || config->text == main_key) {
      if (help != nullptr) in_.wrong(*help, "help belongs to a `config` other than name_or_path");
      return;
    }
    ModelKey* known = find(config->text);
    if (known == nullptr) known = &add(*config, {.name = config->text});
    if (help == nullptr) return;
    const std::string text = in_.text(*help, "help");
    if (!known->help.empty() && known->help != text)
      in_.wrong(*help, fmt::format("`{}` has another help already: {}", config->text, known->help));
    known->help = text;
  }

  void need_help(const Node& node) const {
    const Node* config = node.find("config");
    if (config == nullptr || config->text == main_key || !find(config->text)->help.empty()) return;
    in_.wrong(*config, fmt::format("`{}` needs a `help`: a line that tells users which file it is", config->text));
  }

  void file(const Node& name, const Node& node) {
    const std::string where = fmt::format("file `{}`", name.text);
    in_.check_fields(node, where, {"help"});
    add(name, {.name = name.text, .help = in_.text(in_.need(node, "help", where), "help")});
  }

  void setting(const Node& name, const Node& node) {
    const std::string where = fmt::format("setting `{}`", name.text);
    in_.check_fields(node, where, {"one_of", "number", "flag", "text", "help"});
    if (node.entries.size() != 2 || node.find("help") == nullptr)
      in_.wrong(node, where + " needs `help` and one of `one_of`, `number`, `flag`, `text`");
    ModelKey key{.name = name.text, .help = in_.text(*node.find("help"), "help")};
    const auto& [kind, value] = node.entries[node.entries[0].first.text == "help" ? 1 : 0];
    if (kind.text == "one_of") {
      key.kind = ModelKey::Kind::choice;
      for (const Node& item : in_.list(value, "one_of")) key.choices.push_back(in_.text(item, "an item of one_of"));
      if (key.choices.empty()) in_.wrong(value, "one_of must list at least one word");
    } else if (kind.text == "number") {
      key.kind = ModelKey::Kind::number;
      std::vector<double> ends;
      for (const Node& item : in_.list(value, "number")) ends.push_back(in_.number(item, "an item of number"));
      if (ends.size() != 2 || ends[0] > ends[1]) in_.wrong(value, "number must be [least, most]");
      key.range = {.low = ends[0], .high = ends[1]};
    } else {
      key.kind = kind.text == "flag" ? ModelKey::Kind::flag : ModelKey::Kind::text;
      if (!in_.flag(value, kind.text)) in_.wrong(value, fmt::format("write `{}: true`", kind.text));
    }
    add(name, std::move(key));
  }

  std::vector<ModelKey> keys;

 private:
  const ModelKey* find(const std::string& name) const {
    const auto found = std::ranges::find(keys, name, &ModelKey::name);
    return found == keys.end() ? nullptr : &*found;
  }
  ModelKey* find(const std::string& name) {
    const auto found = std::ranges::find(keys, name, &ModelKey::name);
    return found == keys.end() ? nullptr : &*found;
  }

  ModelKey& add(const Node& name, ModelKey key) {
    const auto word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    if (name.text.empty() || !std::ranges::all_of(name.text, word) || name.text[0] < 'a')
      in_.wrong(name, fmt::format("`{}` is no key: expected small letters, digits and _", name.text));
    if (!is_free_model_key(name.text))
      in_.wrong(name, fmt::format("`model.{}` is a key of the host, or of ai-toolkit: choose another", name.text));
    if (find(name.text) != nullptr) in_.wrong(name, fmt::format("`{}` is there twice", name.text));
    return keys.emplace_back(std::move(key));
  }

  const Strict& in_;
};

}  // namespace

std::vector<ModelKey> read_model_keys(const Strict& in, const Node& root) {
  Reader reader(in);
  const auto& components = root.find("components")->entries;
  for (const auto& [name, node] : components) reader.component(node);
  for (const auto& [name, node] : components) reader.need_help(node);
  if (const Node* files = root.find("files"))
    for (const auto& [name, node] : in.entries(*files, "files")) reader.file(name, node);
  if (const Node* settings = root.find("settings"))
    for (const auto& [name, node] : in.entries(*settings, "settings")) reader.setting(name, node);
  return std::move(reader.keys);
}

std::map<std::string, std::string> read_settings(const Strict& in, const Node& settings, const std::string& where,
                                                 const std::vector<ModelKey>& keys) {
  std::map<std::string, std::string> read;
  for (const auto& [key, value] : in.entries(settings, where)) {
    const auto known = std::ranges::find(keys, key.text, &ModelKey::name);
    const auto takes = [&, text = value.text](const ModelKey& setting) {
      if (setting.kind == ModelKey::Kind::flag) return text == "true" || text == "false";
      return std::ranges::find(setting.choices, text) != setting.choices.end();
    };
    if (known == keys.end() || !takes(*known))
      in.wrong(key, fmt::format("`{}: {}` is no setting of this model with this word", key.text, value.text));
    read[key.text] = value.text;
  }
  return read;
}

ArchNames read_arch_names(const Strict& in, const Node& root, const std::vector<ModelKey>& keys) {
  ArchNames names;
  const Node* arch = root.find("arch");
  if (arch == nullptr) return names;
  for (const auto& [name, settings] : in.entries(*arch, "arch")) {
    names[name.text] = read_settings(in, settings, fmt::format("arch `{}`", name.text), keys);
  }
  return names;
}

ModelKwargs read_model_kwargs(const Strict& in, const Node& root, const std::vector<ModelKey>& keys) {
  ModelKwargs kwargs;
  const Node* node = root.find("model_kwargs");
  if (node == nullptr) return kwargs;
  for (const auto& [name, meant] : in.entries(*node, "model_kwargs")) {
    ModelKwarg& kwarg = kwargs[name.text];
    kwarg.is_file = meant.kind == yaml::Kind::list;
    if (!kwarg.is_file) {
      const std::string where = fmt::format("model_kwargs `{}`", name.text);
      for (const auto& [value, settings] : in.entries(meant, where))
        kwarg.values[value.text] = read_settings(in, settings, where, keys);
      continue;
    }
    for (const Node& key : meant.items) {  // none: it is read past
      const auto known = std::ranges::find(keys, key.text, &ModelKey::name);
      if (key.text != main_key && (known == keys.end() || known->kind != ModelKey::Kind::file))
        in.wrong(key, fmt::format("`{}` is no key of this model for a file", key.text));
      kwarg.files.push_back(key.text);
    }
  }
  return kwargs;
}

}  // namespace lh
