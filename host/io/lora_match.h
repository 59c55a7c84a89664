// The modules of a LoRA file held against a checkpoint: which weights they change. What a file has for no weight is an
// error that names it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/lora_names.h"
#include "io/lora_read.h"

namespace lh {

// Why a module does not fit the weight that it stands for; empty: it fits. weights: canonical names and shapes.
std::string misfit(const LoraEntry& entry, const LoraPlace& place, const std::map<std::string, Desc>& weights);
// Canonical names of the weight and the bias of a place; the bias is empty where its layer is named as a whole tensor.
std::string weight_of(const LoraPlace& place, const std::map<std::string, Desc>& weights);
std::string bias_of(const LoraPlace& place);

struct LoraMatch {  // a module, or its bias, and the rows that it changes
  const LoraEntry* entry = nullptr;
  LoraPlace place;
  bool bias = false;
};
using LoraMatches = std::map<std::string, std::vector<LoraMatch>>;  // by canonical weight or bias

enum class Unmatched {
  refuse,        // all that matches nothing is an error
  but_encoders,  // modules of text encoders that are not there are left out, with a line in the log
  leave_out,     // whatever matches nothing is left out, with a line in the log
};

// Throws lh::Error(Code::data) that lists the keys that cannot be applied, why, and what to do.
LoraMatches match_lora(const LoraFile& file, const LoraNameTable& names, const std::map<std::string, Desc>& weights,
                       Unmatched unmatched);

}  // namespace lh
