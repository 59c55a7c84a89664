// Names and shapes of HunyuanVideo 1.5.
#include "support/hunyuan_video_shapes.h"

#include <fmt/core.h>

#include "support/hunyuan_image_shapes.h"
#include "support/model_shapes.h"
#include "support/qwen_image_shapes.h"

namespace lh::test {

namespace {

constexpr int64_t latent_channels = 32;

void add_conv(Shapes& shapes, const std::string& name, int64_t out, int64_t in, int64_t kernel = 3) {
  shapes[name + ".weight"] = {DType::bf16, {out, in, kernel, kernel, kernel}};
  shapes[name + ".bias"] = {DType::bf16, {out}};
}

void add_res(Shapes& shapes, const std::string& name, int64_t channels) {
  for (const char* part : {"1", "2"}) {
    shapes[name + ".norm" + part + ".gamma"] = {DType::bf16, {channels, 1, 1, 1}};
    add_conv(shapes, name + ".conv" + part + ".conv", channels, channels);
  }
}

}  // namespace

// What reads the text is HunyuanImage's.
Shapes HunyuanVideoDit::shapes() const {
  Shapes out = HunyuanImageDit{blocks, 0, hidden, text, glyphs, between}.shapes();
  out["img_in.proj.weight"] = {DType::bf16, {hidden, 2 * latent_channels + 1, 1, 1, 1}};
  add_linear(out, "final_layer.linear", latent_channels, hidden);
  out["cond_type_embedding.weight"] = {DType::bf16, {3, hidden}};
  add_norm(out, "vision_in.proj.0", seen);
  add_linear(out, "vision_in.proj.1", seen, seen);
  add_linear(out, "vision_in.proj.3", hidden, seen);
  add_norm(out, "vision_in.proj.4", hidden);
  return out;
}

void add_siglip_vision(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t patch) {
  const std::string root = prefix + "vision_model.", embeddings = root + "embeddings.";
  const int64_t side = 384 / patch;
  shapes[embeddings + "patch_embedding.weight"] = {DType::bf16, {width, 3, patch, patch}};
  shapes[embeddings + "patch_embedding.bias"] = {DType::bf16, {width}};
  shapes[embeddings + "position_embedding.weight"] = {DType::bf16, {side * side, width}};
  add_norm(shapes, root + "post_layernorm", width);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("{}encoder.layers.{}.", root, i);
    for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"})
      add_linear(shapes, layer + "self_attn." + part, width, width);
    add_linear(shapes, layer + "mlp.fc1", 4 * width, width);
    add_linear(shapes, layer + "mlp.fc2", width, 4 * width);
    for (const char* norm : {"layer_norm1", "layer_norm2"}) add_norm(shapes, layer + norm, width);
  }
}

void add_hunyuan_video_vae(Shapes& shapes, const std::string& prefix, const std::vector<int64_t>& channels) {
  const size_t levels = channels.size();
  const int64_t narrow = channels.front(), wide = channels.back();
  for (const std::string side : {"encoder", "decoder"}) {
    const bool down = side == "encoder";
    const std::string root = prefix + side + ".";
    for (const char* block : {"mid.block_1", "mid.block_2"}) add_res(shapes, root + block, wide);
    shapes[root + "mid.attn_1.norm.gamma"] = {DType::bf16, {wide, 1, 1, 1}};
    for (const char* part : {"q", "k", "v", "proj_out"}) add_conv(shapes, root + "mid.attn_1." + part, wide, wide, 1);
    for (size_t level = 0; level < levels; ++level) {
      const std::string at = fmt::format("{}{}.{}.", root, down ? "down" : "up", level);
      const auto width = [&](size_t l) { return channels[down ? l : levels - 1 - l]; };
      for (int i = 0; i < (down ? 2 : 3); ++i) add_res(shapes, fmt::format("{}block.{}", at, i), width(level));
      if (level + 1 == levels) continue;
      const int64_t places = (down ? level >= 2 : level < 2) ? 8 : 4;  // of each: 2 x 2, and 2 of time
      add_conv(shapes, at + (down ? "downsample.conv.conv" : "upsample.conv.conv"),
               down ? width(level + 1) / places : places * width(level + 1), width(level));
    }
    add_conv(shapes, root + "conv_in.conv", down ? narrow : wide, down ? 3 : latent_channels);
    shapes[root + "norm_out.gamma"] = {DType::bf16, {down ? wide : narrow, 1, 1, 1}};
    add_conv(shapes, root + "conv_out.conv", down ? 2 * latent_channels : 3, down ? wide : narrow);
  }
}

namespace {

// What a run needs but the denoiser.
Shapes other_parts(int64_t words) {
  constexpr int64_t letters = 300;
  Shapes shapes;
  add_qwen2_5(shapes, "text_encoders.qwen25_7b.transformer.", small_hunyuan_video.text, words);
  add_t5(shapes, "text_encoders.byt5_small.transformer.", small_hunyuan_video.glyphs, 1, letters);
  add_hunyuan_video_vae(shapes, "vae.", small_video_vae_channels);
  return shapes;
}

void write_with(const std::filesystem::path& path, Shapes shapes, const HunyuanVideoDit& denoiser) {
  for (const auto& [name, desc] : denoiser.shapes()) shapes["model.diffusion_model." + name] = desc;
  write_file(path, filled(shapes));
}

}  // namespace

void write_small_hunyuan_video(const std::filesystem::path& path, bool all_words) {
  write_with(path, other_parts(all_words ? 151669 : 1626), small_hunyuan_video);
}

void write_small_hunyuan_video_i2v(const std::filesystem::path& path) {
  HunyuanVideoDit denoiser = small_hunyuan_video;
  denoiser.seen = 144;  // two heads
  Shapes shapes = other_parts(1626);
  add_siglip_vision(shapes, "siglip.", denoiser.seen, 1, 96);
  write_with(path, shapes, denoiser);
}

}  // namespace lh::test
