// Names and shapes of Qwen-Image 2.1.
#include "support/qwen_image21_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"
#include "support/z_image_shapes.h"

namespace lh::test {

Shapes QwenImage21Dit::shapes() const {
  constexpr int64_t channels = 64, sinusoid = 256;
  const int64_t inner = 3 * hidden;
  Shapes out;
  const auto linear = [&](const std::string& name, int64_t o, int64_t i) { add_linear(out, name, o, i, false); };
  linear("img_in", hidden, channels);
  out["txt_in.text_norm.weight"] = {DType::bf16, {text}};
  linear("txt_in.in_layer", hidden, text);
  linear("txt_in.out_layer", hidden, hidden);
  linear("time_text_embed.timestep_embedder.linear_1", hidden, sinusoid);
  linear("time_text_embed.timestep_embedder.linear_2", hidden, hidden);
  linear("modulation.1", 4 * hidden, hidden);
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}", i);
    for (const char* name : {".to_q", ".to_k", ".to_v", ".to_out.0"}) linear(block + ".attn" + name, hidden, hidden);
    for (const char* norm : {".norm_q.weight", ".norm_k.weight"}) out[block + ".attn" + norm] = {DType::bf16, {128}};
    linear(block + ".img_mlp.gate_up", 2 * inner, hidden);
    linear(block + ".img_mlp.out", hidden, inner);
  }
  linear("norm_out.linear", hidden, hidden);
  linear("proj_out", channels, hidden);
  return out;
}

void add_small_qwen3_vl_8b(Shapes& shapes, const std::string& prefix, int64_t words) {
  add_llm(shapes, prefix, {small_qwen_image21.text, 2, 2, 128, words});
}

void write_small_qwen_image21(const std::filesystem::path& path) {
  constexpr int64_t words = 151669;
  Shapes text;
  add_small_qwen3_vl_8b(text, "text_encoders.qwen3vl_8b.transformer.", words);
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] :
       {std::pair{std::string("model.diffusion_model."), filled(small_qwen_image21.shapes())},
        std::pair{std::string("vae."), golden_weights("vae_qwen_image21_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
