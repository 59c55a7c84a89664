// What reading files of kohya's programs has in common, sd-scripts (kohya.h) and musubi-tuner (musubi.h): their
// arguments have the same names for what is the same.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/kohya_keys.h"
#include "config/translated.h"
#include "config/yaml.h"

namespace lh::kohya {

// Text with the place of another node.
yaml::Node scalar(const yaml::Node& like, std::string text);
// Sets "train.lr" in a mapping, with the place of the key that said it. What was there before goes.
void set(yaml::Node& mapping, std::string_view path, const yaml::Node& key, yaml::Node value);
// Sets what the files of a dataset do not say of one.
void set_missing(yaml::Node& dataset, std::string_view path, const std::string& text);

// The tables of a program's names.
struct Names {
  std::string_view (*ours)(std::string_view);
  bool (*has_no_effect)(std::string_view);
  const Refused* (*refused)(std::string_view);
  std::string (*unknown)(const std::string& name);  // what is said of a name that is in none of them
};

// Keys with another name, without effect, or refused.
class ScriptReader {
 public:
  ScriptReader(const Names& names, Translated& to) : names_(names), to_(to) {}

  void problem(const yaml::Node& at, std::string_view key, const std::string& text);
  // Whether the key needs nothing more. section: "datasets[]." or none.
  bool read(const yaml::Node& key, const yaml::Node& value, yaml::Node& into, std::string_view section);
  void unknown(const yaml::Node& key) { problem(key, key.text, names_.unknown(key.text)); }

 private:
  const Names& names_;
  Translated& to_;
};

// A file of training arguments.
class ScriptArguments {
 protected:
  explicit ScriptArguments(const Names& names) : reader_(names, to_) {}
  ~ScriptArguments() = default;

  void collect(const yaml::Node& file);  // sections are only for order there
  const yaml::Node* find(const std::string& name) const;
  const yaml::Node& key_of(const std::string& name) const { return *given_.at(name).first; }
  bool on(const std::string& name) const;
  void put(std::string_view path, const yaml::Node& key, yaml::Node value);
  void put(std::string_view path, const yaml::Node& key, const std::string& text);
  void note(std::string text) { to_.notes.push_back(std::move(text)); }
  // Keys that mean the same in both programs, and more than another name.
  bool read_shared(const yaml::Node& key, const yaml::Node& value);

  Translated to_;
  ScriptReader reader_;
  std::map<std::string, std::pair<const yaml::Node*, const yaml::Node*>> given_;

 private:
  bool schedule_is(std::string_view name) const;
  bool read_schedule(const yaml::Node& key, const yaml::Node& value);
  void read_base_weights(const yaml::Node& key, const yaml::Node& value);
  void read_optimizer(const yaml::Node& key, const yaml::Node& value);
  void read_network_argument(const yaml::Node& key, const std::string& option, yaml::Node value);
};

}  // namespace lh::kohya
