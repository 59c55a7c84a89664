// What a model's file or folder holds, as far as the plugins know it: for people and for tools.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plugin/recognise.h"

namespace lh {

struct ComponentReport {
  std::string name, config_key;
  bool found = false;
  bool optional = false;  // the model works without it
  int64_t tensors = 0, parameters = 0;
  std::map<std::string, int64_t> dtypes;  // as stored: type -> tensors
  std::string fp8;                        // "", "plain" (the values themselves) or "scaled" (codes with factors)
};

struct CheckpointReport {
  std::string plugin;                        // that takes it as a model; empty: none does
  std::string layout;                        // "single file, original names behind model.diffusion_model."
  std::string family, variant, objective;    // of the plugin's recipe
  std::string problem;                       // why the plugin does not open it, in its words
  std::vector<ComponentReport> components;   // of the plugin's checkpoint
  std::map<std::string, std::string> words;  // plugin -> what it takes the path for, where it does not take it
  std::vector<FoundComponent> parts;         // where no plugin takes it: encoders and autoencoders in it
};

CheckpointReport inspect_checkpoint(const Registry& registry, const std::filesystem::path& path);
std::string report_text(const CheckpointReport& report);
nlohmann::json report_json(const CheckpointReport& report);

}  // namespace lh
