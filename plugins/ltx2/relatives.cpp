// Models that share LTX-2's names, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace ltx2 {

using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (!w.has("patchify_proj.weight") || !w.has("transformer_blocks.0.attn1.to_q.weight")) return std::nullopt;
  const bool gated = w.has("transformer_blocks.0.attn1.to_gate_logits.weight");  // from LTX-2.3 on
  if (!gated && !w.has("audio_scale_shift_table"))
    return "this is LTX-Video, which has no sound and whose text comes from T5 (audio_scale_shift_table is missing); "
           "LTX-2, LTX-2.3 and LTX-2.5 are trained here";
  return std::nullopt;
}

}  // namespace ltx2
