// Names and shapes of Wan.
#include "support/wan_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"

namespace lh::test {

Shapes WanDit::shapes() const {
  constexpr int64_t time = 256, patch = 2;  // of the sinusoid; side of a patch
  Shapes out;
  out["patch_embedding.weight"] = {DType::bf16, {hidden, channels + shown, 1, patch, patch}};
  out["patch_embedding.bias"] = {DType::bf16, {hidden}};
  add_linear(out, "text_embedding.0", hidden, text);
  add_linear(out, "text_embedding.2", hidden, hidden);
  add_linear(out, "time_embedding.0", hidden, time);
  add_linear(out, "time_embedding.2", hidden, hidden);
  add_linear(out, "time_projection.1", 6 * hidden, hidden);
  add_linear(out, "head.head", patch * patch * channels, hidden);
  out["head.modulation"] = {DType::bf16, {1, 2, hidden}};
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    for (const char* attention : {"self_attn.", "cross_attn."}) {
      for (const char* linear : {"q", "k", "v", "o"}) add_linear(out, block + attention + linear, hidden, hidden);
      for (const char* norm : {"norm_q.weight", "norm_k.weight"})
        out[block + attention + norm] = {DType::bf16, {hidden}};
    }
    add_norm(out, block + "norm3", hidden);
    add_linear(out, block + "ffn.0", inner, hidden);
    add_linear(out, block + "ffn.2", hidden, inner);
    out[block + "modulation"] = {DType::bf16, {1, 6, hidden}};
  }
  return out;
}

void add_umt5(Shapes& shapes, const std::string& prefix, int64_t width, int64_t blocks, int64_t words) {
  add_t5(shapes, prefix, width, blocks, words);
  for (int64_t i = 0; i < blocks; ++i)
    shapes[fmt::format("{}encoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight", prefix, i)] = {
        DType::bf16, {32, 2}};
}

namespace {

void write_small(const std::filesystem::path& path, const WanDit& denoiser, const std::string& autoencoder) {
  constexpr int64_t words = 32128;
  Shapes text;
  add_umt5(text, "text_encoders.umt5xxl.transformer.", denoiser.text, 2, words);
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] : {std::pair{std::string("model.diffusion_model."), filled(denoiser.shapes())},
                                        std::pair{std::string("vae."), golden_weights(autoencoder)}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace

void write_small_wan(const std::filesystem::path& path) { write_small(path, small_wan, "vae_qwen_image_encode"); }
void write_small_ti2v(const std::filesystem::path& path) { write_small(path, small_ti2v, "vae_wan22_encode"); }
void write_small_wan_i2v(const std::filesystem::path& path) {
  write_small(path, image_to_video(small_wan), "vae_qwen_image_encode");
}

}  // namespace lh::test
