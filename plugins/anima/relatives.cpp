// Models that share Anima's names, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace anima {

using lora_host::Dims;
using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  const Dims in = w.find("x_embedder.proj.1.weight").value_or(Dims{});
  if (in.size() != 2 || !w.has("blocks.0.mlp.layer1.weight")) return std::nullopt;
  const std::string base = "Cosmos-Predict2, on which Anima was built: its text comes from T5";
  if (w.document("", "model_index.json").value_or("").find("\"Cosmos2") != std::string::npos)
    return "this is " + base + " (model_index.json)";
  if (in[1] != 68)
    return "this is a Cosmos model that is shown further pictures or has other latents (x_embedder.proj.1.weight "
           "takes " +
           std::to_string(in[1]) + " columns, Anima's 68)";
  // A single file has transformer and adapter, a folder the transformer alone.
  const bool folder = w.document("denoiser", "config.json").has_value();
  if (!folder && !w.has("llm_adapter.norm.weight"))
    return "this is " + base +
           ", or Anima's transformer without its adapter (llm_adapter.*), which has to be in the file";
  return std::nullopt;
}

}  // namespace anima
