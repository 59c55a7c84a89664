// What encodes the text of LTX-2: Gemma, a projection of all its states, and the connector (connector.h).
#pragma once

#include "lora_host/lora_host.hpp"

namespace ltx2 {

// Prompts are read by Gemma 4 (LTX-2.5) rather than Gemma 3: as the transformer tells, or without it the encoders'
// files.
bool reads_gemma4(const lora_host::Weights& weights);

// States of Gemma are normalised by token, as from LTX-2.3 on.
bool projects_by_token(const lora_host::Weights& weights);

// Widths of a row of text for the clip's stream and for its sound's, each 0 where nothing is there that says it.
struct TextWidths {
  int64_t clip, sound;
};

// Throws where tensors of the encoders that are there do not fit each other.
TextWidths check_text(const lora_host::Weights& weights, bool sound);

// gemma3.input_ids and gemma3.attention_mask, or those of gemma4, i32 [B, L] -> text [B, L, D], all rows of it to be
// read, and with sound sound_text likewise.
void build_conditioner(lora_host::Graph& g, const lora_host::Sizes& sizes, bool sound);

}  // namespace ltx2
