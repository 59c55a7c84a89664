// Names and shapes of ERNIE-Image.
#include "support/ernie_image_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"

namespace lh::test {

Shapes ErnieImage::shapes() const {
  constexpr int64_t channels = 128, head = 128;
  const int64_t h = hidden;
  Shapes out;
  out["x_embedder.proj.weight"] = {DType::bf16, {h, channels, 1, 1}};
  out["x_embedder.proj.bias"] = {DType::bf16, {h}};
  add_linear(out, "text_proj", h, text, false);
  for (const char* linear : {"time_embedding.linear_1", "time_embedding.linear_2"}) add_linear(out, linear, h, h);
  add_linear(out, "adaLN_modulation.1", 6 * h, h);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i), attention = layer + "self_attention.", mlp = layer + "mlp.";
    for (const char* linear : {"to_q", "to_k", "to_v", "to_out.0"}) add_linear(out, attention + linear, h, h, false);
    for (const char* norm : {"norm_q.weight", "norm_k.weight"}) out[attention + norm] = {DType::bf16, {head}};
    for (const char* linear : {"gate_proj", "up_proj"}) add_linear(out, mlp + linear, inner, h, false);
    add_linear(out, mlp + "linear_fc2", h, inner, false);
    for (const char* norm : {"adaLN_sa_ln.weight", "adaLN_mlp_ln.weight"}) out[layer + norm] = {DType::bf16, {h}};
  }
  add_linear(out, "final_norm.linear", 2 * h, h);
  add_linear(out, "final_linear", channels, h);
  return out;
}

void write_small_ernie_image(const std::filesystem::path& path) {
  Shapes text;
  add_llm(text, "text_encoders.ministral3_3b.transformer.", small_ministral);
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] :
       {std::pair{std::string("model.diffusion_model."), filled(small_ernie_image.shapes())},
        std::pair{std::string("vae."), golden_weights("vae_flux2_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
