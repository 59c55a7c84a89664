// Names and shapes of NextDit and of language models.
#include "support/z_image_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"

namespace lh::test {

Shapes NextDit::shapes() const {
  constexpr int64_t time = 256, channels = 64;  // of the time embedding; of a patch
  Shapes out;
  const auto norm = [&](const std::string& name, int64_t width) { out[name + ".weight"] = {DType::bf16, {width}}; };
  add_linear(out, "x_embedder", hidden, channels);
  add_linear(out, "t_embedder.mlp.0", 1024, time);
  add_linear(out, "t_embedder.mlp.2", time, 1024);
  norm("cap_embedder.0", text);
  add_linear(out, "cap_embedder.1", hidden, text);
  for (const char* token : {"x_pad_token", "cap_pad_token"}) out[token] = {DType::bf16, {1, hidden}};
  add_linear(out, "final_layer.adaLN_modulation.1", hidden, time);
  add_linear(out, "final_layer.linear", channels, hidden);
  for (const char* part : {"layers", "noise_refiner", "context_refiner"})
    for (int64_t i = 0; i < (part == std::string("layers") ? layers : refiners); ++i) {
      const std::string block = fmt::format("{}.{}.", part, i);
      add_linear(out, block + "attention.qkv", 3 * hidden, hidden, false);
      add_linear(out, block + "attention.out", hidden, hidden, false);
      norm(block + "attention.q_norm", 128);
      norm(block + "attention.k_norm", 128);
      add_linear(out, block + "feed_forward.w1", inner, hidden, false);
      add_linear(out, block + "feed_forward.w2", hidden, inner, false);
      add_linear(out, block + "feed_forward.w3", inner, hidden, false);
      for (const char* name : {"attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2"})
        norm(block + name, hidden);
      if (part != std::string("context_refiner")) add_linear(out, block + "adaLN_modulation.0", 4 * hidden, time);
    }
  return out;
}

void add_llm(Shapes& shapes, const std::string& prefix, const LlmSize& size) {
  const std::string root = prefix + "model.";
  const auto norm = [&](const std::string& name, int64_t width) { shapes[name + ".weight"] = {DType::bf16, {width}}; };
  shapes[root + "embed_tokens.weight"] = {DType::bf16, {size.words, size.width}};
  norm(root + "norm", size.width);
  const int64_t queries = 128 * size.heads, keys = queries / 2;
  for (int64_t i = 0; i < size.layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", root, i);
    norm(layer + "input_layernorm", size.width);
    norm(layer + "post_attention_layernorm", size.width);
    norm(layer + "self_attn.q_norm", 128);
    norm(layer + "self_attn.k_norm", 128);
    add_linear(shapes, layer + "self_attn.q_proj", queries, size.width, false);
    add_linear(shapes, layer + "self_attn.k_proj", keys, size.width, false);
    add_linear(shapes, layer + "self_attn.v_proj", keys, size.width, false);
    add_linear(shapes, layer + "self_attn.o_proj", size.width, queries, false);
    add_linear(shapes, layer + "mlp.gate_proj", size.inner, size.width, false);
    add_linear(shapes, layer + "mlp.up_proj", size.inner, size.width, false);
    add_linear(shapes, layer + "mlp.down_proj", size.width, size.inner, false);
  }
}

void write_small_z_image(const std::filesystem::path& path, const NextDit& denoiser) {
  constexpr int64_t words = 1626;
  Shapes text;
  add_llm(text, "text_encoders.qwen3_4b.transformer.", {denoiser.text, 2, 2, 128, words});
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] : {std::pair{std::string("model.diffusion_model."), filled(denoiser.shapes())},
                                        std::pair{std::string("vae."), golden_weights("vae_flux_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
