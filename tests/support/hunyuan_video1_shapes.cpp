// Names and shapes of the first HunyuanVideo.
#include "support/hunyuan_video1_shapes.h"

#include <fmt/core.h>

#include "support/flux2_shapes.h"
#include "support/hunyuan_image_shapes.h"

namespace lh::test {

namespace {

constexpr int64_t latent_channels = 16;

void add_conv3(Shapes& shapes, const std::string& name, int64_t out, int64_t in, int64_t kernel = 3) {
  shapes[name + ".weight"] = {DType::bf16, {out, in, kernel, kernel, kernel}};
  shapes[name + ".bias"] = {DType::bf16, {out}};
}

void add_res_of(Shapes& shapes, const std::string& name, int64_t out, int64_t in) {
  add_norm(shapes, name + ".norm1", in);
  add_norm(shapes, name + ".norm2", out);
  add_conv3(shapes, name + ".conv1.conv", out, in);
  add_conv3(shapes, name + ".conv2.conv", out, out);
  if (out != in) add_conv3(shapes, name + ".conv_shortcut.conv", out, in, 1);
}

void add_middle(Shapes& shapes, const std::string& name, int64_t channels) {
  for (const char* block : {".resnets.0", ".resnets.1"}) add_res_of(shapes, name + block, channels, channels);
  add_norm(shapes, name + ".attentions.0.group_norm", channels);
  for (const char* part : {"to_q", "to_k", "to_v", "to_out.0"})
    add_linear(shapes, name + ".attentions.0." + part, channels, channels);
}

}  // namespace

// Blocks, and what reads the text, are HunyuanImage's, which has glyphs as well.
Shapes HunyuanVideo1Dit::shapes() const {
  Shapes out = HunyuanImageDit{double_blocks, single_blocks, hidden, text, 1, 1}.shapes();
  std::erase_if(out, [](const auto& entry) { return entry.first.starts_with("byt5_in."); });
  out["img_in.proj.weight"] = {DType::bf16, {hidden, latent_channels, 1, 2, 2}};
  for (const auto& [name, in] : {std::pair{"guidance_in", int64_t{256}}, std::pair{"vector_in", pooled}}) {
    add_linear(out, fmt::format("{}.in_layer", name), hidden, in);
    add_linear(out, fmt::format("{}.out_layer", name), hidden, hidden);
  }
  return out;
}

void add_hunyuan_video1_vae(Shapes& shapes, const std::string& prefix, const std::vector<int64_t>& channels,
                            int64_t blocks) {
  const size_t levels = channels.size();
  for (const bool up : {false, true}) {
    const std::string root = prefix + (up ? "decoder." : "encoder.");
    const auto width = [&](size_t level) { return channels[up ? levels - 1 - level : level]; };
    int64_t at = width(0);
    add_conv3(shapes, root + "conv_in.conv", at, up ? latent_channels : 3);
    for (size_t level = 0; level < levels; ++level) {
      const std::string name = fmt::format("{}{}.{}.", root, up ? "up_blocks" : "down_blocks", level);
      for (int64_t i = 0; i < blocks + (up ? 1 : 0); ++i, at = width(level))
        add_res_of(shapes, fmt::format("{}resnets.{}", name, i), width(level), at);
      if (level + 1 < levels)
        add_conv3(shapes, name + (up ? "upsamplers.0.conv.conv" : "downsamplers.0.conv.conv"), at, at);
    }
    add_middle(shapes, root + "mid_block", channels.back());
    add_norm(shapes, root + "conv_norm_out", at);
    add_conv3(shapes, root + "conv_out.conv", up ? 3 : 2 * latent_channels, at);
  }
  add_conv3(shapes, prefix + "quant_conv", 2 * latent_channels, 2 * latent_channels, 1);
  add_conv3(shapes, prefix + "post_quant_conv", latent_channels, latent_channels, 1);
}

void write_small_hunyuan_video1(const std::filesystem::path& path) {
  const HunyuanVideo1Dit& size = small_hunyuan_video1;
  Shapes shapes;
  for (const auto& [name, desc] : size.shapes()) shapes["model.diffusion_model." + name] = desc;
  add_hunyuan_video1_vae(shapes, "vae.", small_video1_vae_channels, 1);
  add_mistral(shapes, "text_encoders.llama.transformer.", {size.text, 3, 2, 64, small_llama3_words});
  add_clip(shapes, "text_encoders.clip_l.transformer.", size.pooled, 1, clip_words);
  write_file(path, filled(shapes));
}

}  // namespace lh::test
