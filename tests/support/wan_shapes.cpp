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
    if (image > 0) {
      for (const char* linear : {"k_img", "v_img"}) add_linear(out, block + "cross_attn." + linear, hidden, hidden);
      out[block + "cross_attn.norm_k_img.weight"] = {DType::bf16, {hidden}};
    }
    add_norm(out, block + "norm3", hidden);
    add_linear(out, block + "ffn.0", inner, hidden);
    add_linear(out, block + "ffn.2", hidden, inner);
    out[block + "modulation"] = {DType::bf16, {1, 6, hidden}};
  }
  if (image == 0) return out;
  add_norm(out, "img_emb.proj.0", image);
  add_linear(out, "img_emb.proj.1", image, image);
  add_linear(out, "img_emb.proj.3", hidden, image);
  add_norm(out, "img_emb.proj.4", hidden);
  return out;
}

void add_clip_vision(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t patch) {
  const std::string root = prefix + "vision_model.", embeddings = root + "embeddings.";
  const int64_t side = 224 / patch;
  shapes[embeddings + "class_embedding"] = {DType::bf16, {width}};
  shapes[embeddings + "patch_embedding.weight"] = {DType::bf16, {width, 3, patch, patch}};
  shapes[embeddings + "position_embedding.weight"] = {DType::bf16, {side * side + 1, width}};
  for (const char* norm : {"pre_layrnorm", "post_layernorm"}) add_norm(shapes, root + norm, width);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("{}encoder.layers.{}.", root, i);
    for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"})
      add_linear(shapes, layer + "self_attn." + part, width, width);
    add_linear(shapes, layer + "mlp.fc1", 4 * width, width);
    add_linear(shapes, layer + "mlp.fc2", width, 4 * width);
    for (const char* norm : {"layer_norm1", "layer_norm2"}) add_norm(shapes, layer + norm, width);
  }
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
  Shapes encoders;
  add_umt5(encoders, "text_encoders.umt5xxl.transformer.", denoiser.text, 2, words);
  if (denoiser.image > 0) add_clip_vision(encoders, "clip_vision.", denoiser.image, 3, 56);
  std::vector<Given> all = filled(encoders);
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
void write_small_wan21_i2v(const std::filesystem::path& path) {
  write_small(path, small_wan21_i2v, "vae_qwen_image_encode");
}

}  // namespace lh::test
