// Strict YAML to MusubiModel.
#include "io/musubi_model_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/model_key_spec.h"

namespace lh {
namespace {

using yaml::Node;
using yaml::Strict;

class MusubiReader {
 public:
  MusubiReader(const Strict& in, const std::vector<ModelKey>& keys) : in_(in), keys_(keys) {}

  MusubiModel read(const Node& node) const {
    in_.check_fields(node, "musubi_tuner",
                     {"network_module", "paths", "words", "arguments", "set", "left_out", "targets", "exclude_patterns",
                      "by_size", "guidance_in_model", "fps", "note"});
    MusubiModel model;
    model.network_module = in_.text(in_.need(node, "network_module", "musubi_tuner"), "network_module");
    model.paths = paths(node);
    if (const Node* words = node.find("words"))
      for (const auto& [argument, all] : in_.entries(*words, "words"))
        for (const auto& [name, meaning] : in_.entries(all, argument.text))
          model.words[argument.text].push_back(word(name, meaning));
    in_.set(node, "arguments", model.arguments);
    model.set = settings(node, "set");
    in_.set(node, "left_out", model.left_out);
    in_.set(node, "targets", model.targets);
    if (const Node* patterns = node.find("exclude_patterns")) {
      const std::string what = in_.choice(*patterns, "exclude_patterns", {"added", "instead", "refused"});
      using enum MusubiModel::Patterns;
      model.exclude_patterns = what == "added" ? added : what == "instead" ? instead : refused;
    }
    in_.set(node, "by_size", model.by_size);
    in_.set(node, "guidance_in_model", model.guidance_in_model);
    in_.set(node, "fps", model.fps, {.low = 1, .high = 1000});
    in_.set(node, "note", model.note);
    return model;
  }

 private:
  MusubiModel::Word word(const Node& name, const Node& node) const {
    MusubiModel::Word word{.word = name.text};
    if (node.kind == yaml::Kind::scalar) {
      word.refused = in_.text(node, "the reason why a word is refused");
      return word;
    }
    const std::string where = fmt::format("word `{}`", name.text);
    in_.check_fields(node, where, {"set", "paths", "boundary", "above", "below", "first_frame"});
    word.set = settings(node, "set");
    word.paths = paths(node);
    in_.set(node, "first_frame", word.first_frame);
    if (const Node* boundary = node.find("boundary")) {
      word.boundary = in_.number(*boundary, "boundary", {.low = 0, .high = 1});
      word.above = settings(node, "above");
      word.below = settings(node, "below");
      if (word.above.empty() || word.below.empty())
        in_.wrong(*boundary, where + " with a boundary needs `above` and `below`");
    }
    return word;
  }

  MusubiModel::Settings settings(const Node& node, const char* field) const {
    const Node* given = node.find(field);
    return given == nullptr ? MusubiModel::Settings{} : read_settings(in_, *given, field, keys_);
  }

  std::map<std::string, std::string> paths(const Node& node) const {
    std::map<std::string, std::string> all;
    const Node* given = node.find("paths");
    if (given == nullptr) return all;
    for (const auto& [argument, key] : in_.entries(*given, "paths")) {
      const auto known = std::ranges::find(keys_, key.text, &ModelKey::name);
      if (known == keys_.end() || known->kind != ModelKey::Kind::file)
        in_.wrong(key, fmt::format("`{}` is no file of this model", key.text));
      all[argument.text] = key.text;
    }
    return all;
  }

  const Strict& in_;
  const std::vector<ModelKey>& keys_;
};

}  // namespace

std::optional<MusubiModel> read_musubi_model(const Strict& in, const Node& root, const std::vector<ModelKey>& keys) {
  const Node* node = root.find("musubi_tuner");
  if (node == nullptr) return std::nullopt;
  return MusubiReader(in, keys).read(*node);
}

}  // namespace lh
