// The adapter between Qwen3 and the transformer: tokens of T5's vocabulary, whose embeddings are its own, ask the
// states of Qwen3 and become the rows that the transformer reads. The canonical names of its weights begin with
// "llm_adapter:".
#pragma once

#include "lora_host/lora_host.hpp"

namespace anima {

// Throws where a tensor is missing or has another shape. Gives the width of the rows.
int64_t check_adapter(const lora_host::Weights& weights);
// Columns that it takes of Qwen3's states.
int64_t adapter_source(const lora_host::Weights& weights);

// ids i32 [B, L]; states [B, S, D] of Qwen3; lengths i32 [B]: how many of either are there -> [B, L, d]. What is beyond
// the lengths is not seen; rows there have no meaning.
lora_host::Value adapter(lora_host::Graph& g, lora_host::Value ids, lora_host::Value lengths, lora_host::Value states,
                         lora_host::Value state_lengths);

}  // namespace anima
