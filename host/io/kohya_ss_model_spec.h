// `kohya_ss` of a plugin's checkpoint YAML (config/kohya_ss_model.h).
#pragma once

#include <optional>

#include "config/kohya_ss_model.h"
#include "config/strict.h"

namespace lh {

std::optional<KohyaSsModel> read_kohya_ss_model(const yaml::Strict& in, const yaml::Node& root);

}  // namespace lh
