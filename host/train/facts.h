// What decides the bits of a step: settings, files, tokenizers, plugins and libraries. A run goes on with the same ones
// only.
#pragma once

#include <map>
#include <string>

#include "train/prepare.h"

namespace lh {

// By what the user would change: "train.seed", "vae (model.vae_path)", "tokenizer of ENCODER", "plugin ID", "device".
std::map<std::string, std::string> facts_of(Prepared& prepared);
// What processes that train together have to have in common besides: the program, every plugin, every setting. asked:
// the configuration as it was given.
std::map<std::string, std::string> common_facts(Prepared& prepared, const Config& asked);

}  // namespace lh
