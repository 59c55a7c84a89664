// Names and shapes of Ideogram 4.
#include "support/ideogram4_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"
#include "support/z_image_shapes.h"

namespace lh::test {

Shapes Ideogram4Dit::shapes() const {
  constexpr int64_t channels = 128;
  Shapes out;
  add_linear(out, "input_proj", hidden, channels);
  out["llm_cond_norm.weight"] = {DType::bf16, {text}};
  add_linear(out, "llm_cond_proj", hidden, text);
  add_linear(out, "t_embedding.mlp_in", hidden, hidden);
  add_linear(out, "t_embedding.mlp_out", hidden, hidden);
  add_linear(out, "adaln_proj", condition, hidden);
  out["embed_image_indicator.weight"] = {DType::bf16, {2, hidden}};
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string name = fmt::format("layers.{}", i);
    add_linear(out, name + ".attention.qkv", 3 * hidden, hidden, false);
    add_linear(out, name + ".attention.o", hidden, hidden, false);
    for (const char* norm : {".norm_q", ".norm_k"}) out[name + ".attention" + norm + ".weight"] = {DType::bf16, {head}};
    for (const char* norm : {".attention_norm1", ".attention_norm2", ".ffn_norm1", ".ffn_norm2"})
      out[name + norm + ".weight"] = {DType::bf16, {hidden}};
    for (const char* linear : {".w1", ".w3"}) add_linear(out, name + ".feed_forward" + linear, inner, hidden, false);
    add_linear(out, name + ".feed_forward.w2", hidden, inner, false);
    add_linear(out, name + ".adaln_modulation", 4 * hidden, condition);
  }
  add_linear(out, "final_layer.linear", channels, hidden);
  add_linear(out, "final_layer.adaln_modulation", hidden, condition);
  return out;
}

void add_ideogram4_encoder(Shapes& shapes, const std::string& prefix, int64_t words) {
  constexpr int64_t layers = 7;
  add_llm(shapes, prefix, {small_ideogram4_encoder, layers, 2, 64, words});
}

void write_small_ideogram4(const std::filesystem::path& path) {
  constexpr int64_t words = 151669;
  Shapes text;
  add_ideogram4_encoder(text, "text_encoders.qwen3vl_8b.transformer.", words);
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] :
       {std::pair{std::string("model.diffusion_model."), filled(small_ideogram4.shapes())},
        std::pair{std::string("vae."), golden_weights("vae_flux2_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
