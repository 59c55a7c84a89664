// Strict YAML to Experts.
#include "io/expert_spec.h"

#include <fmt/core.h>

#include <algorithm>

namespace lh {
namespace {

using yaml::Node;
using yaml::Strict;

void add_key(const Strict& in, const Node& node, std::vector<ModelKey>& keys, ModelKey key) {
  if (!is_free_model_key(key.name) || std::ranges::find(keys, key.name, &ModelKey::name) != keys.end())
    in.wrong(node, fmt::format("`model.{}`, which this name makes, is a key already: choose another", key.name));
  keys.push_back(std::move(key));
}

}  // namespace

Experts read_experts(const Strict& in, const Node& root, std::vector<ModelKey>& keys) {
  Experts out;
  const Node* node = root.find("experts");
  if (node == nullptr) return out;
  in.check_fields(*node, "experts", {"setting", "together", "each"});
  const Node& setting = in.need(*node, "setting", "experts");
  out.setting = in.text(setting, "setting");
  const auto known = std::ranges::find(keys, out.setting, &ModelKey::name);
  if (known == keys.end() || known->choices.empty())
    in.wrong(setting, fmt::format("`{}` is no setting of this model with `one_of`", out.setting));
  const std::vector<std::string> words = known->choices;
  const auto word = [&](const Node& at, const char* what) {
    const std::string text = in.text(at, what);
    if (std::ranges::find(words, text) == words.end())
      in.wrong(at, fmt::format("`{}` is no word of the setting `{}`", text, out.setting));
    return text;
  };
  out.together = word(in.need(*node, "together", "experts"), "together");
  for (const auto& [name, one] : in.entries(in.need(*node, "each", "experts"), "each")) {
    const std::string where = fmt::format("expert `{}`", name.text);
    in.check_fields(one, where, {"is", "folder"});
    Expert expert{.name = name.text, .word = word(in.need(one, "is", where), "is"), .folder = {}};
    in.set(one, "folder", expert.folder);
    add_key(in, name, keys,
            {.name = expert.path_key(),
             .help = fmt::format("The expert {}, where name_or_path is another: a file, or a folder of its shards.",
                                 expert.word)});
    add_key(in, name, keys,
            {.name = expert.lora_key(),
             .help = fmt::format("LoRA that {} has in samples while another expert is trained.", expert.word)});
    out.each.push_back(std::move(expert));
  }
  if (out.each.size() < 2) in.wrong(*node, "experts must list two at least, from the noisiest");
  return out;
}

}  // namespace lh
