// Options of a part of a plugin (options.h of the SDK): what the user wrote, checked against the list that the part's
// descriptor has.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "config/config.h"
#include "config/range.h"
#include "lora_host/lora_host.h"

namespace lh {

// One option as its descriptor states it.
struct OptionSpec {
  std::string name;
  int32_t type = LH_OPTION_FLOAT;
  Range range = {};
  uint32_t count = 0;  // of a list; 0 = any number
  bool nullable = false;
  std::string otherwise = {};  // default; empty: none
  std::vector<std::string> choices = {};
  std::string help = {};
  std::string value_name() const;  // "number, more than 0", "erf|tanh", "list of 2 numbers, at least 0 and less than 1"
};

// The values of a part's options, defaults included, as create takes them.
class OptionValues {
 public:
  using Value = std::variant<double, int64_t, bool, std::string, std::vector<double>>;

  void add(std::string name, Value value);
  // Points into this object.
  std::vector<lh_attr> attrs() const;
  // "betas=[0.9, 0.999] eps=1e-08": two with one text are the same.
  std::string text() const;
  std::string yaml() const;  // "{betas: [0.9, 0.999], eps: 1e-08}", as a configuration has them

 private:
  std::string joined(std::string_view is, std::string_view between) const;
  std::vector<std::pair<std::string, Value>> values_;
};

// The list of a descriptor; NULL is an empty one. Throws lh::Error(Code::plugin), which begins with `owner`, where the
// list itself is wrong: a type or flag that the host does not know, a default that the option would refuse.
std::vector<OptionSpec> read_options(const lh_option* list, const std::string& owner);

// Throws lh::Error(Code::config) that lists what is wrong, one a line: place, key (`section` and the option's name),
// what was expected and found. owner: "optimizer 'adamw'".
OptionValues check_options(const std::vector<OptionSpec>& specs, const GivenOptions& given, const std::string& section,
                           const std::string& owner);

// A line of help for each option, as `lora-host plugins --verbose` prints it.
std::vector<std::string> option_lines(const std::vector<OptionSpec>& specs);

}  // namespace lh
