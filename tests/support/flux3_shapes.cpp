// Names and shapes of Flux.3.
#include "support/flux3_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"

namespace lh::test {

Shapes Flux3::shapes() const {
  constexpr int64_t channels = 128, time = 256;  // of the latents; of the sinusoids
  const int64_t h = hidden, inner = 3 * hidden;
  Shapes out;
  const auto linear = [&](const std::string& name, int64_t rows, int64_t columns) {
    add_linear(out, name, rows, columns, false);
  };
  linear("time_in.in_layer", h, time);
  linear("time_in.out_layer", h, h);
  linear("txt_in", h, text);
  linear("final_layer.image.adaLN_modulation.1", 2 * h, h);
  linear("final_layer.image.linear", channels, h);
  for (const char* mode : {"image", "image_cond", "txt"})
    for (const char* group : {"early", "single"})
      linear(fmt::format("{}_stream_modulations.{}.lin", group, mode), 3 * h, h);
  std::vector<std::string> blocks;
  for (const std::string mode : {"image", "image_cond"}) {
    linear("emb_in." + mode, h, channels);
    for (int64_t i = 0; i < mode_blocks; ++i) blocks.push_back(fmt::format("content_mode_blocks.{}.{}", mode, i));
  }
  for (int64_t i = 0; i < mode_blocks; ++i) blocks.push_back(fmt::format("txt_mode_blocks.{}", i));
  for (int64_t i = 0; i < single_blocks; ++i) blocks.push_back(fmt::format("single_blocks.{}", i));
  for (const std::string& block : blocks) {
    for (const char* name : {".q_proj", ".k_proj", ".v_proj", ".attn_out"}) linear(block + name, h, h);
    linear(block + ".mlp_in", 2 * inner, h);
    linear(block + ".mlp_out", h, inner);
    for (const char* norm : {".norm.query_norm.scale", ".norm.key_norm.scale"})
      out[block + norm] = {DType::bf16, {128}};
  }
  return out;
}

void write_small_flux3(const std::filesystem::path& path) {
  Shapes text;
  add_llm(text, "text_encoders.qwen3vl_4b.transformer.", small_flux3_encoder);
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] : {std::pair{std::string("model.diffusion_model."), filled(small_flux3.shapes())},
                                        std::pair{std::string("vae."), golden_weights("vae_flux2_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
