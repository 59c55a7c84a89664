// What the file of a plugin offers, as its trial listed it: enough to know which plugins a command needs, without
// loading any.
#pragma once

#include <string>
#include <vector>

namespace lh {

class Plugin;

struct PluginOffers {
  struct Model {
    std::string id, checkpoint;  // the YAML of its files
  };
  struct Rule {
    std::string id;
    std::vector<std::string> names;  // others than the id
  };
  std::string id;  // of the plugin
  std::vector<Model> models;
  std::vector<Rule> optimizers;
  std::vector<std::string> adapters;
  bool samplers = false, schedules = false;

  explicit PluginOffers(const Plugin& plugin);
  // Of what text() gave; throws lh::Error(Code::data).
  explicit PluginOffers(const std::string& text);
  std::string text() const;
};

}  // namespace lh
