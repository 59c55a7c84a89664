// What a run is computed by: files, tokenizers, plugins and libraries. A run goes on with the same ones only, since
// with others its bits would differ.
#pragma once

#include <map>
#include <string>

#include "train/prepare.h"

namespace lh {

// By what the user would change: "vae (model.vae_path)", "tokenizer of t5", "plugin flux", "device".
std::map<std::string, std::string> component_facts(Prepared& prepared);

}  // namespace lh
