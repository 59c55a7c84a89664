// A configuration for people to go on with, and the reference of all keys as Markdown, made from the schema
// (docs/config.md holds a copy).
#pragma once

#include <map>
#include <string>

#include "config/config.h"

namespace lh {

using KeyComments = std::map<std::string, std::string>;  // by key: "train.lr"

// As to_yaml(config), without the keys that are as they would be anyway; those with a comment are there, and it stands
// behind them.
std::string to_yaml(const Config& config, const KeyComments& comments);

std::string config_reference();

}  // namespace lh
