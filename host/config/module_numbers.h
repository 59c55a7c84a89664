// Numbers that the user gives to modules by name: of the patterns, regular expressions that the whole name is like, the
// longest counts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/pattern.h"

namespace lh {

class ModuleNumbers {
 public:
  // key: "network.module_ranks". Throws lh::Error(Code::config) for a pattern that is no regular expression.
  ModuleNumbers(const char* key, const std::map<std::string, double>& numbers);
  std::optional<double> of(const std::string& module) const;
  // Throws lh::Error(Code::config) for a pattern that none of these modules is like, with the nearest name.
  void require_use(const std::vector<std::string>& modules) const;

 private:
  struct One {
    std::string text;
    Pattern pattern;
    double number = 0;
  };
  std::string key_;
  std::vector<One> all_;
};

// Throws lh::Error(Code::config) that names the key.
Pattern module_pattern(const std::string& key, const std::string& text);

}  // namespace lh
