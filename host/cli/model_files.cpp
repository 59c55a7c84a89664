// Each file is shown to the plugins, as `inspect` does: what a file is called says nothing.
#include "cli/model_files.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/error.h"
#include "io/repository.h"
#include "io/weight_names.h"
#include "plugin/inspect_checkpoint.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

struct ModelFiles {
  fs::path model;                                       // the denoiser, or a whole model; empty: there is none
  std::map<std::string, fs::path> parts;                // by key of `model:`: "vae_path"
  std::map<std::string, std::vector<fs::path>> others;  // that would do as well
};

// Weights, and folders as diffusers has them, which count as a whole.
void list_weights(const fs::path& folder, int depth, std::vector<fs::path>& found) {
  std::error_code error, none;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_directory(none)) {
      if (fs::exists(entry->path() / "model_index.json", none))
        found.push_back(entry->path());
      else if (depth > 0)
        list_weights(entry->path(), depth - 1, found);
    } else if (named_as_weights(entry->path())) {
      found.push_back(entry->path());
    }
  }
}

ModelFiles find_files(const Registry& registry, const std::string& plugin, const fs::path& folder) {
  constexpr int depth = 3;  // models/NAME/text_encoders/encoder.safetensors
  std::vector<fs::path> weights;
  list_weights(folder, depth, weights);
  // Codes of a GGUF file are less than what the others have.
  std::ranges::sort(weights, {},
                    [](const fs::path& path) { return std::pair(path.extension() == gguf_extension, path); });
  ModelFiles files;
  for (const fs::path& path : weights) try {
      const std::vector<Opinion> opinions = ask_plugins(registry, path, plugin);
      if (!opinions.empty() && opinions[0].confidence > 0) {
        if (opinions[0].id() != plugin) continue;
        if (files.model.empty())
          files.model = path;
        else
          files.others["name_or_path"].push_back(path);
        continue;
      }
      for (const FoundComponent& part : parts_at(registry, path)) {
        if (std::ranges::find(part.plugins, plugin) == part.plugins.end()) continue;
        if (!files.parts.emplace(part.config_key, path).second) files.others[part.config_key].push_back(path);
      }
    } catch (const Error&) {
      continue;  // no weights, or damaged: it is no part of a model
    }
  return files;
}

// What is published where, a line each.
std::string published_lines(const Registry& registry, const std::string& plugin) {
  std::string lines;
  for (const ListedModel& model : registry.listed_models()) {
    if (model.id != plugin) continue;
    const yaml::Strict in("plugin " + model.id + ": checkpoint YAML", Code::plugin);
    for (const auto& [repository, what] : read_published(in, in.parse(model.checkpoint)))
      lines += fmt::format("\n  {}: {}", repository, what);
  }
  return lines;
}

void complete_parts(const Registry& registry, const ModelSearch& search, const ModelFiles& files,
                    const CheckpointReport& report, Config& config) {
  std::string missing;
  for (const ComponentReport& part : report.components) {
    if (part.found || config.model.given.contains(part.config_key)) continue;
    if (const auto found = files.parts.find(part.config_key); found != files.parts.end())
      config.model.given[part.config_key] = {.text = found->second.string(), .source = search.folder.string()};
    else if (!part.optional)
      missing += fmt::format("{}{} ({})", missing.empty() ? "" : ", ", part.config_key, part.name);
  }
  if (!missing.empty())
    fail(Code::config,
         "init: {} has no {}, and no file in {} is one. Give the folder with the files (--models), or name them "
         "(lora-host plugins --verbose has the flags). Published:{}",
         config.model.name_or_path.string(), missing, search.folder.string(), published_lines(registry, report.plugin));
}

}  // namespace

void complete_model(const Registry& registry, const ModelSearch& search, Config& config, KeyComments& comments) {
  std::string id = search.plugin;
  if (id.empty()) id = inspect_checkpoint(registry, config.model.name_or_path).plugin;
  const ModelFiles files = find_files(registry, id, search.folder);
  const bool looked_for = config.model.name_or_path.empty();
  if (looked_for) {
    if (files.model.empty())
      fail(Code::config,
           "init: {}: no file in it holds a model of plugin {}. Give the folder with the files (--models), or the file "
           "(--model PATH). Published:{}",
           search.folder.string(), id, published_lines(registry, id));
    config.model.name_or_path = files.model;
  }
  const CheckpointReport report = inspect_checkpoint(registry, config.model.name_or_path);
  if (report.plugin.empty()) return;  // whoever opens it says what it is instead
  config.plugin = report.plugin;
  complete_parts(registry, search, files, report, config);
  for (const auto& [key, paths] : files.others) {
    const auto given = config.model.given.find(key);
    const bool found_here = given == config.model.given.end() ? looked_for && key == "name_or_path"
                                                              : given->second.text == files.parts.at(key).string();
    if (found_here) comments["model." + key] = fmt::format("another one: {}", paths.front().string());
  }
}

}  // namespace lh
