// Where a command writes one file of the user's choice.
#pragma once

#include <string>

#include "cli/options.h"

namespace lh {

// Before anything is computed: throws lh::Error(Code::config) where Options::output is there and --force is not given.
// `word`: what the user named it by.
void refuse_replacing(const Options& options, const std::string& word = "--out");

}  // namespace lh
