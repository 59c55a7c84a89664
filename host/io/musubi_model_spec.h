// `musubi_tuner` of a plugin's checkpoint YAML (config/musubi_model.h).
#pragma once

#include <optional>
#include <vector>

#include "config/model_keys.h"
#include "config/strict.h"

namespace lh {

// keys: those that the same YAML gives its users.
std::optional<MusubiModel> read_musubi_model(const yaml::Strict& in, const yaml::Node& root,
                                             const std::vector<ModelKey>& keys);

}  // namespace lh
