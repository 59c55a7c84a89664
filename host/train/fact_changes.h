// What differs between a run as it was saved and as it is started now, in words, and whether it may.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lh {

using Facts = std::map<std::string, std::string>;

// The images of the run (picture_list.h): not compared itself, but what it says where `datasets` differs.
inline constexpr const char* pictures_fact = "images";
// Which build's steps have the same bits; states of older versions do not name it.
inline constexpr const char* arithmetic_fact = "arithmetic of lora-host";

struct FactChange {
  std::string text;  // "train.batch_size: the saved run has 4, this one 2"
  bool may = false;  // --allow-changes goes on with it: another course of the same adapter on the same model
};
// In the order of the keys of `now`.
std::vector<FactChange> changed_facts(const Facts& then, const Facts& now);

// Every setting of a configuration's text, "train.lr" = "1e-3".
Facts settings_in(const std::string& yaml);
// "train.lr 0.0001 to 5e-05, train.steps 4 to 6": of two configurations' texts. Empty: none.
std::string changed_settings(const std::string& before, const std::string& now);

}  // namespace lh
