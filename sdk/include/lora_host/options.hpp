// Makers of options, for the list of a descriptor:
//
//   constexpr lh_option options[] = {
//       option::reals("betas", "[0.9, 0.999]", 2, option::from_below(0, 1), "Decay of the two averages."),
//       option::real("eps", "1e-8", option::at_least(0), "Added to the root."),
//       option::end};
#pragma once

#include "lora_host/options.h"

namespace lora_host::option {

struct Limits {
  double min = 0, max = 0;
  uint32_t flags = 0;
};
constexpr Limits any{};
constexpr Limits at_least(double min) { return {min, 0, LH_OPTION_MIN}; }
constexpr Limits above(double min) { return {min, 0, LH_OPTION_MIN | LH_OPTION_ABOVE}; }
constexpr Limits within(double min, double max) { return {min, max, LH_OPTION_MIN | LH_OPTION_MAX}; }
constexpr Limits from_below(double min, double max) {  // [min, max)
  return {min, max, LH_OPTION_MIN | LH_OPTION_MAX | LH_OPTION_BELOW};
}
constexpr Limits between(double min, double max) {  // (min, max)
  return {min, max, LH_OPTION_MIN | LH_OPTION_MAX | LH_OPTION_ABOVE | LH_OPTION_BELOW};
}

// `otherwise` is the default as a user writes it; nullptr: none.
constexpr lh_option real(const char* name, const char* otherwise, Limits limits, const char* help) {
  return {name, LH_OPTION_FLOAT, limits.flags, 0, otherwise, limits.min, limits.max, nullptr, help};
}
constexpr lh_option integer(const char* name, const char* otherwise, Limits limits, const char* help) {
  return {name, LH_OPTION_INT, limits.flags, 0, otherwise, limits.min, limits.max, nullptr, help};
}
constexpr lh_option flag(const char* name, const char* otherwise, const char* help) {
  return {name, LH_OPTION_BOOL, 0, 0, otherwise, 0, 0, nullptr, help};
}
// choices: NULL-terminated.
constexpr lh_option choice(const char* name, const char* otherwise, const char* const* choices, const char* help) {
  return {name, LH_OPTION_CHOICE, 0, 0, otherwise, 0, 0, choices, help};
}
// count: how many numbers; 0 = any number of them.
constexpr lh_option reals(const char* name, const char* otherwise, uint32_t count, Limits limits, const char* help) {
  return {name, LH_OPTION_FLOATS, limits.flags, count, otherwise, limits.min, limits.max, nullptr, help};
}
// The same option, which the user may also set to null.
constexpr lh_option nullable(lh_option option) {
  option.flags |= LH_OPTION_NULLABLE;
  return option;
}
constexpr lh_option end{};

}  // namespace lora_host::option
