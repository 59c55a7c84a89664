// The connector between Gemma's projected states and the transformer, of the clip's stream ("connector:") or of its
// sound's: a small transformer with rows of its own in the place of pads.
#pragma once

#include <string>

#include "lora_host/lora_host.hpp"

namespace ltx2 {

// x [B, L, D], mask f32 [B, L, 1] -> [B, L, D], all rows of it to be read.
lora_host::Value connected(lora_host::Graph& g, const std::string& connector, int64_t head, lora_host::Value x,
                           lora_host::Value mask);

// Throws where a tensor is missing or of another shape than rows of this width, above 0, ask for. Gives their width.
int64_t check_connector(const lora_host::Weights& weights, const std::string& connector, int64_t head, int64_t width);

}  // namespace ltx2
