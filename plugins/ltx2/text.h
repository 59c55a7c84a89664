// What encodes the text of LTX-2: Gemma, a projection of all its states, and the connector, a small transformer with
// rows of its own in the place of pads.
#pragma once

#include "lora_host/lora_host.hpp"

namespace ltx2 {

// Prompts are read by Gemma 4 (LTX-2.5) rather than Gemma 3: as the transformer tells, or without it the encoders'
// files.
bool reads_gemma4(const lora_host::Weights& weights);

// Throws where tensors of the encoders that are there do not fit each other. Gives the width of a row of text, 0 where
// there is no connector.
int64_t check_text(const lora_host::Weights& weights);

// gemma3.input_ids and gemma3.attention_mask, or those of gemma4, i32 [B, L] -> text [B, L, D], all rows of it to be
// read.
void build_conditioner(lora_host::Graph& g, const lora_host::Sizes& sizes);

}  // namespace ltx2
