// Reading a configuration whose missing parts may come from elsewhere, such as command line flags.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/model_keys.h"

namespace lh {

struct ConfigNeeds {
  bool model = true, datasets = true;  // the text itself must name them
  const std::vector<PluginKeys>* plugins =
      nullptr;       // a key of `model` that none of them has is unknown; null: not said
  bool arch = true;  // and a model.arch is refused
  // What is wrong with the name of a plugin's part, such as an optimizer's, that this key has; empty: nothing. Not
  // asked where there is no such function.
  std::function<std::string(std::string_view key, const std::string& name)> wrong_name = {};
  // The learning rate that users give an optimizer, where its plugin names one; not asked where there is no such
  // function.
  std::function<std::optional<double>(const std::string& optimizer)> usual_rate = {};
};

// A file of ours, of ai-toolkit, where its name ends in .toml of kohya's scripts or of musubi-tuner, or in .json a
// preset of the interface kohya_ss;
// dataset_config: a file of the datasets, as those have it, or empty. Throws like load_config.
Config load_config(const std::filesystem::path& file, const std::filesystem::path& dataset_config, ConfigNeeds needs);
// A mapping of our keys that was made of another program's file; defaults: what it has where it says nothing.
Config config_of(const yaml::Node& document, const std::string& file, ConfigNeeds needs, const Config& defaults);
// The bytes of a configuration file. Throws lh::Error(Code::config).
std::string read_config_text(const std::filesystem::path& file);
// `file` is what problems are reported under. Throws like load_config.
Config parse_config(const std::string& text, const std::string& file, ConfigNeeds needs = {});
Config load_config(const std::filesystem::path& file, ConfigNeeds needs);
// The key `plugin` of a file, by which plugins can be loaded before the file is read: some are named by their path.
// Empty where it is not set or the file cannot be read; load_config says what is wrong then.
std::string plugin_named_in(const std::filesystem::path& file);
// "file:line:column: " of a key, {"train", "lr"}, for what is found once flags were laid over the file. Empty where the
// file does not have it.
std::string place_in(const std::filesystem::path& file, std::initializer_list<std::string_view> path);

}  // namespace lh
