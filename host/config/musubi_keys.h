// What the names in files of musubi-tuner are here.
#pragma once

#include <string>
#include <string_view>

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

// A timestep_sampling that shifts levels by the size of a model's images.
bool is_by_size(std::string_view law);

}  // namespace lh::musubi
