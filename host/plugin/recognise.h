// What a path holds in the eyes of the model plugins: which of them takes it as a model, and if none does, what it is.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/checkpoint.h"
#include "plugin/plugin_model.h"

namespace lh {

// What one plugin says about the denoiser at a path.
struct Opinion {
  ListedModel model;
  CheckpointSpec spec;
  int32_t confidence = 0;             // 0..100
  std::string words;                  // what the plugin takes it for instead, where it knows
  bool has_marker = false;            // the denoiser's marker tensor is there
  std::optional<Error> mistake = {};  // of the plugin, while it looked
  const std::string& id() const { return model.id; }
};

// Of every plugin, the surest first; of equals, in the order in which they were found. Only plugins are loaded whose
// marker tensor is there, and the one that is `named`; where none of these takes it, those too that have other tensors
// to look at.
std::vector<Opinion> ask_plugins(const Registry& registry, const std::filesystem::path& path,
                                 const std::string& named = {});

// A component that a plugin could take from a path: it is there, and the plugin opens it.
struct FoundComponent {
  std::string component;             // "vae"
  std::string config_key;            // "vae_path"
  std::vector<std::string> plugins;  // that take it for this component
};
// All but denoisers.
std::vector<FoundComponent> parts_at(const Registry& registry, const std::filesystem::path& path);

// Lines that say what the path holds, where it is no model that a plugin takes: a LoRA, an encoder alone, a folder of
// other files. Each begins with a line break; empty where there is nothing to say.
std::string what_it_is(const Registry& registry, const std::filesystem::path& path);

}  // namespace lh
