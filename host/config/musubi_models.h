// Which plugin's model a file of musubi-tuner is of: each model has a script there, with arguments of its own.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/model_keys.h"
#include "config/yaml.h"

namespace lh::musubi {

class Models {
 public:
  using Given = std::map<std::string, std::pair<const yaml::Node*, const yaml::Node*>>;  // key and value, by name

  explicit Models(std::span<const PluginKeys> plugins);
  // By the plugin that the file names, by its network, or by what only one model's script has. nullptr: not told.
  const PluginKeys* of(const Given& given) const;
  const PluginKeys* of_network(const std::string& module) const;
  // Has a model's script an argument of this name, for a file or with words?
  bool have(const std::string& argument) const { return !with(argument).empty(); }
  std::vector<const PluginKeys*> with(const std::string& argument) const;
  const std::vector<const PluginKeys*>& all() const { return all_; }

 private:
  std::vector<const PluginKeys*> all_;
};

// The word that is given for one of the model's arguments; nullptr: it has none such. A flag that is off has none.
const MusubiModel::Word* word_of(const MusubiModel& model, const std::string& argument, const yaml::Node& value);

}  // namespace lh::musubi
