// Names of repositories where a path is expected: other programs fetch a model by its name, this one reads files.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "config/strict.h"

namespace lh {

// "organisation/name" of a repository -> what is to be fetched from it.
using Published = std::map<std::string, std::string>;

// `published` of a plugin's `checkpoint` YAML.
Published read_published(const yaml::Strict& in, const yaml::Node& checkpoint);

// For a path that does not exist: ". It looks like ...", with how to fetch it and what is known of it. Empty where it
// is no name of a repository.
std::string repository_hint(const std::filesystem::path& path, const Published& published);

}  // namespace lh
