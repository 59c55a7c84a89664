// The manual page, and completions for shells.
#pragma once

#include <string>
#include <vector>

#include "cli/command_table.h"

namespace lh {

// plugins: the section about files and settings of models.
std::string man_page(const std::vector<CommandInfo>& commands, const std::string& plugins);
std::string bash_completion(const std::vector<CommandInfo>& commands);
std::string zsh_completion(const std::vector<CommandInfo>& commands);
std::string fish_completion(const std::vector<CommandInfo>& commands);

}  // namespace lh
