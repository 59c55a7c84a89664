// What the names in files of kohya's sd-scripts are here.
#pragma once

#include <string_view>
#include <vector>

namespace lh::kohya {

// Our key for one of kohya's that is only named differently, or nothing.
std::string_view ours(std::string_view name);
// Keys that change nothing here.
bool has_no_effect(std::string_view name);
// All that are known, those that mean more than another name, too.
std::vector<std::string_view> known_names();

struct Refused {
  std::string_view key, harmless, fix;  // harmless: a value that asks for nothing, besides false, 0 and none
  bool of_datasets = false;
};
const Refused* refused(std::string_view name);

}  // namespace lh::kohya
