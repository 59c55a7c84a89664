// Names and shapes of Lumina 2 and of Gemma 2.
#include "support/lumina2_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"

namespace lh::test {

Shapes Lumina2Dit::shapes() const {
  constexpr int64_t channels = 64, sinusoid = 256;  // of a patch; of the time
  Shapes out;
  const auto norm = [&](const std::string& name, int64_t width) { out[name + ".weight"] = {DType::bf16, {width}}; };
  add_linear(out, "x_embedder", hidden, channels);
  add_linear(out, "t_embedder.mlp.0", time, sinusoid);
  add_linear(out, "t_embedder.mlp.2", time, time);
  norm("cap_embedder.0", text);
  add_linear(out, "cap_embedder.1", hidden, text);
  add_linear(out, "final_layer.adaLN_modulation.1", hidden, time);
  add_linear(out, "final_layer.linear", channels, hidden);
  for (const std::string part : {"layers", "noise_refiner", "context_refiner"})
    for (int64_t i = 0; i < (part == "layers" ? layers : refiners); ++i) {
      const std::string block = fmt::format("{}.{}.", part, i);
      add_linear(out, block + "attention.qkv", hidden + 2 * keys, hidden, false);
      add_linear(out, block + "attention.out", hidden, hidden, false);
      norm(block + "attention.q_norm", head);
      norm(block + "attention.k_norm", head);
      add_linear(out, block + "feed_forward.w1", inner, hidden, false);
      add_linear(out, block + "feed_forward.w2", hidden, inner, false);
      add_linear(out, block + "feed_forward.w3", inner, hidden, false);
      for (const char* name : {"attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2"})
        norm(block + name, hidden);
      if (part != "context_refiner") add_linear(out, block + "adaLN_modulation.1", 4 * hidden, time);
    }
  return out;
}

void add_gemma2(Shapes& shapes, const std::string& prefix, const Gemma2Size& size) {
  constexpr int64_t head = 256;
  const std::string root = prefix + "model.";
  const auto norm = [&](const std::string& name) { shapes[name + ".weight"] = {DType::bf16, {size.width}}; };
  shapes[root + "embed_tokens.weight"] = {DType::bf16, {size.words, size.width}};
  norm(root + "norm");
  const int64_t queries = head * size.heads, keys = queries / 2;
  for (int64_t i = 0; i < size.layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", root, i);
    for (const char* name :
         {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"})
      norm(layer + name);
    add_linear(shapes, layer + "self_attn.q_proj", queries, size.width, false);
    add_linear(shapes, layer + "self_attn.k_proj", keys, size.width, false);
    add_linear(shapes, layer + "self_attn.v_proj", keys, size.width, false);
    add_linear(shapes, layer + "self_attn.o_proj", size.width, queries, false);
    add_linear(shapes, layer + "mlp.gate_proj", size.inner, size.width, false);
    add_linear(shapes, layer + "mlp.up_proj", size.inner, size.width, false);
    add_linear(shapes, layer + "mlp.down_proj", size.width, size.inner, false);
  }
}

void write_small_lumina2(const std::filesystem::path& path) {
  constexpr int64_t words = 384;
  Shapes text;
  add_gemma2(text, "text_encoders.gemma2_2b.transformer.", {small_lumina2.text, 2, 2, 96, words});
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] :
       {std::pair{std::string("model.diffusion_model."), filled(small_lumina2.shapes())},
        std::pair{std::string("vae."), golden_weights("vae_flux_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
