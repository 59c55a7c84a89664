// The keys of `model:` that a plugin's `checkpoint` YAML gives its users: files of components and others, and settings.
#pragma once

#include <vector>

#include "config/model_keys.h"
#include "config/strict.h"

namespace lh {

// root: the whole YAML, of whose components the fields are known to be right.
std::vector<ModelKey> read_model_keys(const yaml::Strict& in, const yaml::Node& root);
// {variant: dev}: settings among `keys` of the same YAML, and words of theirs.
std::map<std::string, std::string> read_settings(const yaml::Strict& in, const yaml::Node& settings,
                                                 const std::string& where, const std::vector<ModelKey>& keys);
// What ai-toolkit's names of the kinds of model mean.
ArchNames read_arch_names(const yaml::Strict& in, const yaml::Node& root, const std::vector<ModelKey>& keys);
ModelKwargs read_model_kwargs(const yaml::Strict& in, const yaml::Node& root, const std::vector<ModelKey>& keys);

}  // namespace lh
