// Names and shapes of Qwen-Image.
#include "support/qwen_image_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"
#include "support/z_image_shapes.h"

namespace lh::test {

Shapes QwenDit::shapes() const {
  constexpr int64_t time = 256, channels = 64;  // of the sinusoid; of a patch
  Shapes out;
  const auto norm = [&](const std::string& name, int64_t width) { out[name + ".weight"] = {DType::bf16, {width}}; };
  add_linear(out, "img_in", hidden, channels);
  norm("txt_norm", text);
  add_linear(out, "txt_in", hidden, text);
  add_linear(out, "time_text_embed.timestep_embedder.linear_1", hidden, time);
  add_linear(out, "time_text_embed.timestep_embedder.linear_2", hidden, hidden);
  add_linear(out, "norm_out.linear", 2 * hidden, hidden);
  add_linear(out, "proj_out", channels, hidden);
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}.", i);
    for (const char* name :
         {"to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_out.0", "to_add_out"})
      add_linear(out, block + "attn." + name, hidden, hidden);
    for (const char* name : {"norm_q", "norm_k", "norm_added_q", "norm_added_k"}) norm(block + "attn." + name, 128);
    for (const char* stream : {"img_", "txt_"}) {
      add_linear(out, block + stream + "mod.1", 6 * hidden, hidden);
      add_linear(out, block + stream + "mlp.net.0.proj", inner, hidden);
      add_linear(out, block + stream + "mlp.net.2", hidden, inner);
    }
  }
  return out;
}

void add_qwen2_5(Shapes& shapes, const std::string& prefix, int64_t width, int64_t words) {
  add_llm(shapes, prefix, {width, 2, 2, 128, words});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string attention = fmt::format("{}model.layers.{}.self_attn.", prefix, layer);
    for (const char* norm : {"q_norm.weight", "k_norm.weight"}) shapes.erase(attention + norm);
    for (const char* linear : {"q_proj", "k_proj", "v_proj"})
      shapes[attention + linear + ".bias"] = {DType::bf16,
                                              {shapes.at(attention + linear + std::string(".weight")).shape[0]}};
  }
}

void add_qwen_vision(Shapes& shapes, const std::string& prefix, int64_t width) {
  constexpr int64_t hidden = 80, inner = 44, group = 4 * hidden;
  shapes[prefix + "patch_embed.proj.weight"] = {DType::bf16, {hidden, 3, 2, 14, 14}};
  const std::string block = prefix + "blocks.0.";
  for (const char* norm : {"norm1.weight", "norm2.weight"}) shapes[block + norm] = {DType::bf16, {hidden}};
  add_linear(shapes, block + "attn.qkv", 3 * hidden, hidden);
  add_linear(shapes, block + "attn.proj", hidden, hidden);
  add_linear(shapes, block + "mlp.gate_proj", inner, hidden);
  add_linear(shapes, block + "mlp.up_proj", inner, hidden);
  add_linear(shapes, block + "mlp.down_proj", hidden, inner);
  shapes[prefix + "merger.ln_q.weight"] = {DType::bf16, {hidden}};
  add_linear(shapes, prefix + "merger.mlp.0", group, group);
  add_linear(shapes, prefix + "merger.mlp.2", width, group);
}

void write_small_qwen_image(const std::filesystem::path& path) {
  constexpr int64_t words = 1626;
  Shapes text;
  add_qwen2_5(text, "text_encoders.qwen25_7b.transformer.", small_qwen_image.text, words);
  add_qwen_vision(text, "text_encoders.qwen25_7b.transformer.visual.", small_qwen_image.text);
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] :
       {std::pair{std::string("model.diffusion_model."), filled(small_qwen_image.shapes())},
        std::pair{std::string("vae."), golden_weights("vae_qwen_image_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
