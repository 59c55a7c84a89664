// The network that a preset of kohya_ss asks for: LoRA_type, and the fields that are arguments of it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/kohya_ss_model.h"
#include "config/yaml.h"

namespace lh::kohya_ss {

// The fields of a preset.
class Fields {
 public:
  explicit Fields(const yaml::Node& file) : file_(file) {}
  const yaml::Node& file() const { return file_; }
  // nullptr: it is not there, or is empty, off or 0.
  const yaml::Node* given(std::string_view name) const;
  const yaml::Node& key_of(std::string_view name) const { return *file_.find_key(name); }  // of one that is there
  double number(std::string_view name) const;                                              // 0 unless it is one
  bool flag(std::string_view name) const;

  using Put = std::function<void(const char* argument, const yaml::Node& key, yaml::Node value)>;
  // Gives network_module and network_args. kinds: of models that have fields of their own.
  void read_network(const std::vector<const KohyaSsModel*>& kinds, const Put& put) const;

 private:
  const yaml::Node& file_;
};

// All fields that are of some network.
std::vector<std::string> network_fields();

}  // namespace lh::kohya_ss
