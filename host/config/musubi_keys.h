// What the names in files of musubi-tuner are here, and the models that it trains.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/kohya_keys.h"

namespace lh::musubi {

// As those of kohya_keys.h; what both programs have is looked up there.
std::string_view ours(std::string_view name);
bool has_no_effect(std::string_view name);
const kohya::Refused* refused(std::string_view name);
std::string unknown(const std::string& name);              // an argument
std::string unknown_of_datasets(const std::string& name);  // a key of datasets
// Of datasets; these may stand in [general], too.
bool may_be_general(std::string_view name);

// A model that musubi-tuner trains and a plugin has.
struct Model {
  std::string_view plugin, module;  // network_module
  std::string_view text_encoder;    // our key for its text_encoder; empty: it has no such argument
  // What its network leaves out of what the plugin's has, or all that it has.
  std::vector<std::string_view> left_out = {}, targets = {};
  std::string_view variant = {};   // the only one that there is
  std::string_view by_size = {};   // timestep_sampling that the plugin's flux_shift is
  bool guidance_in_model = false;  // --g of a prompt is its guidance, else --l is
  double fps = 16;                 // of models of videos
};
const std::vector<Model>& models();
// What there is no plugin for, by network_module; empty: not known.
std::string_view model_without_plugin(std::string_view module);

}  // namespace lh::musubi
