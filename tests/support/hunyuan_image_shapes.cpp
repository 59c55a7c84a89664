// Names and shapes of HunyuanImage 2.1.
#include "support/hunyuan_image_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"
#include "support/qwen_image_shapes.h"

namespace lh::test {

Shapes HunyuanImageDit::shapes() const {
  constexpr int64_t channels = 64, sinusoid = 256;
  const int64_t h = hidden;
  // Blocks and last layer are Flux.1's.
  Shapes out = FluxBlocks{h, text, double_blocks, single_blocks}.shapes();
  for (const char* of_flux : {"img_in", "txt_in"})
    for (const char* part : {".weight", ".bias"}) out.erase(std::string(of_flux) + part);
  const auto embedder = [&](const std::string& name, int64_t in) {
    add_linear(out, name + ".in_layer", h, in);
    add_linear(out, name + ".out_layer", h, h);
  };
  out["img_in.proj.weight"] = {DType::bf16, {h, channels, 1, 1}};
  out["img_in.proj.bias"] = {DType::bf16, {h}};
  embedder("time_in", sinusoid);
  if (distilled) {
    embedder("time_r_in", sinusoid);
    embedder("guidance_in", sinusoid);
  }
  add_norm(out, "byt5_in.layernorm", glyphs);
  add_linear(out, "byt5_in.fc1", between, glyphs);
  add_linear(out, "byt5_in.fc2", between, between);
  add_linear(out, "byt5_in.fc3", h, between);
  add_linear(out, "txt_in.input_embedder", h, text);
  embedder("txt_in.t_embedder", sinusoid);
  embedder("txt_in.c_embedder", text);
  for (int i = 0; i < 2; ++i) {
    const std::string block = fmt::format("txt_in.individual_token_refiner.blocks.{}.", i);
    add_norm(out, block + "norm1", h);
    add_norm(out, block + "norm2", h);
    add_linear(out, block + "self_attn.qkv", 3 * h, h);
    add_linear(out, block + "self_attn.proj", h, h);
    add_linear(out, block + "mlp.0", 4 * h, h);
    add_linear(out, block + "mlp.2", h, 4 * h);
    add_linear(out, block + "adaLN_modulation.1", 2 * h, h);
  }
  for (int64_t i = 0; i < double_blocks; ++i)
    for (const char* side : {"img", "txt"})
      add_linear(out, fmt::format("double_blocks.{}.{}_mod.lin", i, side), 6 * h, h);
  for (int64_t i = 0; i < single_blocks; ++i)
    add_linear(out, fmt::format("single_blocks.{}.modulation.lin", i), 3 * h, h);
  add_linear(out, "final_layer.adaLN_modulation.1", 2 * h, h);
  return out;
}

void add_hunyuan_image_vae(Shapes& shapes, const std::string& prefix, const std::vector<int64_t>& channels) {
  constexpr int64_t z = 64;
  const auto conv = [&](const std::string& name, int64_t o, int64_t i, int64_t kernel = 3) {
    shapes[prefix + name + ".weight"] = {DType::bf16, {o, i, kernel, kernel}};
    shapes[prefix + name + ".bias"] = {DType::bf16, {o}};
  };
  const auto res = [&](const std::string& name, int64_t c) {
    for (const char* part : {"1", "2"}) {
      add_norm(shapes, prefix + name + ".norm" + part, c);
      conv(name + ".conv" + part, c, c);
    }
  };
  const size_t levels = channels.size();
  const int64_t narrow = channels.front(), wide = channels.back();
  for (const std::string side : {"encoder", "decoder"}) {
    const bool down = side == "encoder";
    res(side + ".mid.block_1", wide);
    res(side + ".mid.block_2", wide);
    add_norm(shapes, prefix + side + ".mid.attn_1.norm", wide);
    for (const char* part : {"q", "k", "v", "proj_out"}) conv(side + ".mid.attn_1." + part, wide, wide, 1);
    for (size_t level = 0; level < levels; ++level) {
      const std::string at = fmt::format("{}.{}.{}.", side, down ? "down" : "up", level);
      const auto width = [&](size_t l) { return channels[down ? l : levels - 1 - l]; };
      for (int i = 0; i < (down ? 2 : 3); ++i) res(fmt::format("{}block.{}", at, i), width(level));
      if (level + 1 < levels)
        conv(at + (down ? "downsample.conv" : "upsample.conv"), down ? width(level + 1) / 4 : 4 * width(level + 1),
             width(level));
    }
    conv(side + ".conv_in", down ? narrow : wide, down ? 3 : z);
    add_norm(shapes, prefix + side + ".norm_out", down ? wide : narrow);
    conv(side + ".conv_out", down ? 2 * z : 3, down ? wide : narrow);
  }
}

void write_small_hunyuan_image(const std::filesystem::path& path, bool all_words) {
  constexpr int64_t letters = 300;
  const int64_t words = all_words ? 151669 : 1626;
  Shapes shapes;
  add_qwen2_5(shapes, "text_encoders.qwen25_7b.transformer.", small_hunyuan_image.text, words);
  add_t5(shapes, "text_encoders.byt5_small.transformer.", small_hunyuan_image.glyphs, 1, letters);
  add_hunyuan_image_vae(shapes, "vae.", small_vae_channels);
  for (const auto& [name, desc] : small_hunyuan_image.shapes()) shapes["model.diffusion_model." + name] = desc;
  write_file(path, filled(shapes));
}

}  // namespace lh::test
