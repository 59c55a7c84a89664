#include "support/sd15_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"

namespace lh::test {
namespace {

constexpr int64_t wide = 1280;  // of the vector that res blocks take

void add_conv(Shapes& out, const std::string& name, int64_t o, int64_t i, int64_t side) {
  out[name + ".weight"] = {DType::bf16, {o, i, side, side}};
  out[name + ".bias"] = {DType::bf16, {o}};
}

void add_res(Shapes& out, const std::string& name, int64_t o, int64_t i) {
  add_norm(out, name + ".in_layers.0", i);
  add_conv(out, name + ".in_layers.2", o, i, 3);
  add_linear(out, name + ".emb_layers.1", o, wide);
  add_norm(out, name + ".out_layers.0", o);
  add_conv(out, name + ".out_layers.3", o, o, 3);
  if (o != i) add_conv(out, name + ".skip_connection", o, i, 1);
}

void add_transformer(Shapes& out, const std::string& name, int64_t c, int64_t context, bool convolutions) {
  add_norm(out, name + ".norm", c);
  for (const std::string side : {".proj_in", ".proj_out"}) {
    add_linear(out, name + side, c, c);
    if (convolutions) out[name + side + ".weight"] = {DType::bf16, {c, c, 1, 1}};
  }
  const std::string block = name + ".transformer_blocks.0.";
  for (const char* norm : {"norm1", "norm2", "norm3"}) add_norm(out, block + norm, c);
  for (const auto& [attention, from] : {std::pair<std::string, int64_t>{"attn1.", c}, {"attn2.", context}}) {
    add_linear(out, block + attention + "to_q", c, c, false);
    add_linear(out, block + attention + "to_k", c, from, false);
    add_linear(out, block + attention + "to_v", c, from, false);
    add_linear(out, block + attention + "to_out.0", c, c);
  }
  add_linear(out, block + "ff.net.0.proj", 8 * c, c);
  add_linear(out, block + "ff.net.2", c, 4 * c);
}

}  // namespace

Shapes sd15_unet(int64_t context, bool convolutions, int64_t in) {
  constexpr int64_t widths[] = {320, 640, 1280, 1280};  // of levels; the last has no transformers
  Shapes out;
  add_linear(out, "time_embed.0", wide, widths[0]);
  add_linear(out, "time_embed.2", wide, wide);
  add_conv(out, "input_blocks.0.0", widths[0], in, 3);
  std::vector<int64_t> kept{widths[0]};
  int64_t c = widths[0];
  for (int level = 0; level < 4; ++level)
    for (int i = 1; i <= 3; ++i) {
      const std::string name = fmt::format("input_blocks.{}.", 3 * level + i);
      if (i < 3) add_res(out, name + "0", widths[level], c);
      if (i < 3 && level < 3) add_transformer(out, name + "1", widths[level], context, convolutions);
      if (i == 3 && level == 3) break;
      if (i == 3) add_conv(out, name + "0.op", c, c, 3);
      kept.push_back(c = widths[level]);
    }
  add_res(out, "middle_block.0", c, c);
  add_transformer(out, "middle_block.1", c, context, convolutions);
  add_res(out, "middle_block.2", c, c);
  for (int block = 0; block < 12; ++block) {
    const int level = 3 - block / 3;
    const std::string name = fmt::format("output_blocks.{}.", block);
    add_res(out, name + "0", widths[level], c + kept.back());
    kept.pop_back();
    c = widths[level];
    if (level < 3) add_transformer(out, name + "1", c, context, convolutions);
    if (level > 0 && block % 3 == 2) add_conv(out, name + (level < 3 ? "2" : "1") + ".conv", c, c, 3);
  }
  add_norm(out, "out.0", c);
  add_conv(out, "out.2", 4, c, 3);
  return out;
}

void write_small_sd15(const std::filesystem::path& path, const std::string& golden_case) {
  constexpr int64_t words = 49408;  // the tokenizer's
  Shapes text;
  add_clip(text, "", 64, 2, words);
  std::vector<Given> all;
  const auto append = [&](const std::string& prefix, std::vector<Given> tensors) {
    for (Given& t : tensors) all.push_back({prefix + t.name, std::move(t.tensor)});
  };
  append("cond_stage_model.transformer.", filled(text));
  append("model.diffusion_model.", golden_weights(golden_case));
  append("first_stage_model.", golden_weights("vae_sd15_encode"));
  write_file(path, all);
}

}  // namespace lh::test
