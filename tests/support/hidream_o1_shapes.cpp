// Names and shapes of HiDream-O1-Image.
#include "support/hidream_o1_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"

namespace lh::test {

Shapes HiDreamO1::shapes() const {
  constexpr int64_t patch = 3 * 32 * 32, head = 128, sinusoid = 256;
  Shapes out;
  const auto norm = [&](const std::string& name, int64_t width) { out[name + ".weight"] = {DType::bf16, {width}}; };
  out["language_model.embed_tokens.weight"] = {DType::bf16, {words, hidden}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("language_model.layers.{}.", i);
    add_linear(out, layer + "self_attn.q_proj", queries * head, hidden, false);
    add_linear(out, layer + "self_attn.k_proj", keys * head, hidden, false);
    add_linear(out, layer + "self_attn.v_proj", keys * head, hidden, false);
    add_linear(out, layer + "self_attn.o_proj", hidden, queries * head, false);
    norm(layer + "self_attn.q_norm", head);
    norm(layer + "self_attn.k_norm", head);
    add_linear(out, layer + "mlp.gate_proj", inner, hidden, false);
    add_linear(out, layer + "mlp.up_proj", inner, hidden, false);
    add_linear(out, layer + "mlp.down_proj", hidden, inner, false);
    norm(layer + "input_layernorm", hidden);
    norm(layer + "post_attention_layernorm", hidden);
  }
  norm("language_model.norm", hidden);
  add_linear(out, "t_embedder1.mlp.0", hidden, sinusoid);
  add_linear(out, "t_embedder1.mlp.2", hidden, hidden);
  add_linear(out, "x_embedder.proj1", hidden / 4, patch, false);
  add_linear(out, "x_embedder.proj2", hidden, hidden / 4);
  add_linear(out, "final_layer2.linear", patch, hidden);
  return out;
}

void write_small_hidream_o1(const std::filesystem::path& path) { write_file(path, filled(small_hidream_o1.shapes())); }

}  // namespace lh::test
