// Which file is whose: by a key of its own, by its folder of a diffusers directory, or because name_or_path is that.
#include "config/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/model_keys.h"
#include "config/value.h"
#include "core/error.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

std::string text_of(const ModelConfig& config, const std::string& key) {
  const auto given = config.given.find(key);
  return given == config.given.end() ? "" : given->second.text;
}

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

}  // namespace

const Expert* Experts::find(std::string_view name) const {
  const auto found = std::ranges::find(each, name, &Expert::name);
  return found == each.end() ? nullptr : &*found;
}

bool Experts::wanted_together(const ModelConfig& config) const {
  return !each.empty() && text_of(config, setting) == together;
}

const Expert* Experts::said(const ModelConfig& config) const {
  if (wanted_together(config)) return &each.front();
  const auto found = std::ranges::find(each, text_of(config, setting), &Expert::word);
  return found == each.end() ? nullptr : &*found;
}

fs::path Experts::weights_of(const Expert& expert, const ModelConfig& config) const {
  if (const std::string own = text_of(config, expert.path_key()); !own.empty()) return schema::expand_home(own);
  const fs::path& main = config.name_or_path;
  if (!expert.folder.empty() && is_folder(main / expert.folder)) return main / expert.folder;
  if (text_of(config, setting) == expert.word) return main;
  const auto in_folder = [&](const Expert& one) { return !one.folder.empty() && is_folder(main / one.folder); };
  if (expert.folder.empty() && std::ranges::any_of(each, in_folder)) return main;
  // Of several together name_or_path is the first one that has no key of its own.
  const auto first =
      std::ranges::find_if(each, [&](const Expert& one) { return text_of(config, one.path_key()).empty(); });
  return wanted_together(config) && &*first == &expert ? main : fs::path();
}

ModelConfig Experts::alone(const Expert& expert, const ModelConfig& config) const {
  const fs::path weights = weights_of(expert, config);
  if (weights.empty())
    fail(Code::config,
         "model.{}: missing: {} is {} of several experts, each in a file of its own, and model.name_or_path is another "
         "one's. Name its file with this key, or give a diffusers directory of all of them",
         expert.path_key(), expert.word, expert.name);
  ModelConfig own = config;
  own.name_or_path = weights;
  own.given[setting].text = expert.word;
  own.given.erase(expert.path_key());
  // What else the first file or folder has, such as the image autoencoder, goes for all.
  if (weights != config.name_or_path && text_of(config, extras_key).empty())
    own.given[extras_key] = {.text = config.name_or_path.string()};
  for (const Expert& other : each)
    if (const fs::path theirs = weights_of(other, config); &other != &expert && !theirs.empty())
      own.given[other.path_key()].text = theirs.string();
  return own;
}

}  // namespace lh
