// One value of a configuration: from a YAML node into its field, and back into YAML text.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"
#include "config/yaml.h"

namespace lh::schema {

// Checks type, range and choice and stores the value. What is wrong is appended to `problems`, without the key's name:
// a place and "expected integer, found the text "x"".
void assign(const Key& key, Field field, const yaml::Node& node, std::vector<yaml::Problem>& problems);

// The value in YAML flow style ("[512, 768]"); empty when the field is empty or not set.
std::string print_value(const Field& field);
std::string print_node(const yaml::Node& node);

// What is wrong with a path as a user writes it; empty: nothing.
std::string problem_of_path(const std::string& path);
// Line breaks, tabs and the like, which no name of a file is meant to have.
bool has_control(const std::string& text);
// "~/x" -> "/home/me/x".
std::filesystem::path expand_home(const std::string& path);

}  // namespace lh::schema
