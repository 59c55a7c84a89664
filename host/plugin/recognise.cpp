// Asks every plugin about a path, and puts the answers together.
#include "plugin/recognise.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "io/lora_read.h"
#include "io/record.h"
#include "io/weight_names.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// A plugin is asked where its marker is there, or only where it is not.
void ask(Opinion& opinion, const fs::path& path, bool marked) {
  const ProbedWeights probed = probe_weights(opinion.spec, path);
  opinion.has_marker = probed.has_marker;
  if (probed.weights.empty() || probed.has_marker != marked) return;
  const Offered<lh_model> offered = opinion.model.load();
  try {
    const Probe said = probe(offered, probed.weights, &probed.documents);
    opinion.words = said.words;
    if (probed.has_marker) opinion.confidence = said.confidence;
  } catch (const Error& mistake) {
    opinion.mistake = mistake;  // another plugin may take it
  }
}

// Does the plugin open this component by itself?
bool takes(const ListedModel& model, const ComponentSpec& component, const fs::path& path) try {
  CheckpointSpec alone;
  alone.components = {component};
  const Checkpoint checkpoint(alone, {{component.config_key, path}});
  const PluginModel opened(model.load(), checkpoint.weights(), &checkpoint.documents());
  return true;
} catch (const Error&) {
  return false;  // its keys or shapes are not those of this plugin
}

std::string names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() || named_as_weights(entry.path()))
      names.insert(entry.path().filename().string() + (entry.is_directory() ? "/" : ""));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::vector<Opinion> ask_plugins(const Registry& registry, const fs::path& path, const std::string& named) {
  std::vector<Opinion> opinions;
  FileCache open;  // for all of them
  if (fs::is_regular_file(path)) open.open(path);
  for (const ListedModel& model : registry.listed_models())
    opinions.push_back({model, CheckpointSpec::parse(model.checkpoint, model.id), 0, {}});
  for (Opinion& opinion : opinions) ask(opinion, path, true);
  const bool taken = std::ranges::any_of(opinions, [](const Opinion& o) { return o.confidence > 0; });
  for (Opinion& opinion : opinions)
    if (!taken || opinion.id() == named) ask(opinion, path, false);
  std::ranges::stable_sort(opinions, std::greater(), &Opinion::confidence);
  return opinions;
}

std::vector<FoundComponent> parts_at(const Registry& registry, const fs::path& path) {
  std::vector<FoundComponent> parts;
  for (const ListedModel& model : registry.listed_models()) {
    const CheckpointSpec spec = CheckpointSpec::parse(model.checkpoint, model.id);
    for (const ComponentSpec& component : spec.components) {
      if (component.name == "denoiser" || !takes(model, component, path)) continue;
      auto part = std::ranges::find_if(parts, [&](const FoundComponent& known) {
        return known.component == component.name && known.config_key == component.config_key;
      });
      if (part == parts.end()) part = parts.insert(part, {component.name, component.config_key, {}});
      part->plugins.push_back(model.id);
    }
  }
  return parts;
}

std::string what_it_is(const Registry& registry, const fs::path& path) {
  if (!fs::is_directory(path)) {
    const FilePtr file = open_weight_file(path);
    if (const std::string record = words_of_record(*file); !record.empty()) return "\n  It is " + record;
    if (file->tensors().empty()) return "\n  It holds no tensors at all";
    if (is_lora(*file))
      return "\n  It is a LoRA file. model.name_or_path is the model that it was trained on; the LoRA goes with --lora";
  }
  std::string lines;
  for (const FoundComponent& part : parts_at(registry, path))
    lines += fmt::format("\n  It holds {} of {}: give it as model.{}", part.component, fmt::join(part.plugins, ", "),
                         part.config_key);
  if (!lines.empty()) return lines + "\n  model.name_or_path is the file or folder of the denoiser";
  if (!fs::is_directory(path)) return {};
  const std::string names = names_in(path);
  if (names.empty()) return "\n  It is a folder without safetensors files";
  return fmt::format("\n  It is a folder without the weights of a model where a plugin looks for them; in it: {}",
                     names);
}

}  // namespace lh
