// Keys of `model:` that are not the host's own: every model's plugin says which files and which settings it has.
//
// A configuration keeps what it finds under such keys (ModelConfig::given) with its place; what is wrong with it is
// known when the plugin is.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/experts.h"
#include "config/kohya_ss_model.h"
#include "config/musubi_model.h"
#include "config/range.h"

namespace lh {

struct ModelKey {
  enum class Kind { file, choice, number, flag, text };
  std::string name;  // "t5_path"
  std::string help;
  Kind kind = Kind::file;
  std::vector<std::string> choices = {};  // of choice
  Range range = {};                       // of number
  std::string value_name() const;         // "path", "dev|schnell", "number, 0 to 1"
};

// Where models of every plugin may have what `name_or_path` does not have.
inline constexpr const char* extras_key = "extras_name_or_path";

// ai-toolkit's names of kinds of models as they stand in files, NAME of `model.arch: NAME` and is_NAME of
// `model.is_NAME: true` -> the plugin's settings that each means, by key.
using ArchNames = std::map<std::string, std::map<std::string, std::string>>;

// What a key of ai-toolkit's `model.model_kwargs` means for a plugin.
struct ModelKwarg {
  bool is_file = false;
  std::vector<std::string> files = {};  // a file: the plugin's keys that it is for
  // Anything else: the values that it may have, and the plugin's settings that each means, by key.
  std::map<std::string, std::map<std::string, std::string>> values = {};
};
using ModelKwargs = std::map<std::string, ModelKwarg>;

struct PluginKeys {
  std::string plugin;
  std::vector<ModelKey> keys;
  ArchNames arch = {};
  ModelKwargs model_kwargs = {};
  Experts experts = {};
  std::optional<MusubiModel> musubi = {};             // where musubi-tuner has it, too
  std::optional<KohyaSsModel> kohya_ss = {};          // where the interface kohya_ss does
  const ModelKey* find(std::string_view name) const;  // nullptr: the plugin has no such key
};

// The plugin with the model whose experts the configuration wants together; nullptr: it wants none, or one alone.
// plugin: the id that it names, or empty.
const PluginKeys* of_experts_together(std::span<const PluginKeys> plugins, const ModelConfig& config,
                                      const std::string& plugin);

// May a plugin have a key of this name? Not one that the host or ai-toolkit has.
bool is_free_model_key(const std::string& name);

// "unknown key" and what may have been meant, of the keys of the host and of these plugins.
std::string unknown_model_key(const std::string& name, std::span<const PluginKeys> plugins);

struct ModelValues {
  std::map<std::string, std::filesystem::path> files;
  std::map<std::string, std::string> settings;
};
// What the user gave, for a model of `plugin`, one of `all`; where it wants sound and says nothing of it, with the
// setting `sound` of plugins that have it. Throws lh::Error(Code::config) that lists every key that the plugin does not
// have or takes no such value for, one a line.
ModelValues read_given(const ModelConfig& config, const std::string& plugin, std::span<const PluginKeys> all);

}  // namespace lh
