// Names and shapes of Krea 2.
#include "support/krea2_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"
#include "support/z_image_shapes.h"

namespace lh::test {

void Krea2Dit::block(Shapes& out, const std::string& name, int64_t width, int64_t keys, int64_t mlp) const {
  for (const char* norm : {".prenorm.scale", ".postnorm.scale"}) out[name + norm] = {DType::bf16, {width}};
  for (const char* norm : {".qnorm.scale", ".knorm.scale"}) out[name + ".attn.qknorm" + norm] = {DType::bf16, {head}};
  for (const char* linear : {".wq", ".gate", ".wo"}) add_linear(out, name + ".attn" + linear, width, width, false);
  for (const char* linear : {".wk", ".wv"}) add_linear(out, name + ".attn" + linear, keys, width, false);
  for (const char* linear : {".gate", ".up"}) add_linear(out, name + ".mlp" + linear, mlp, width, false);
  add_linear(out, name + ".mlp.down", width, mlp, false);
}

Shapes Krea2Dit::shapes() const {
  constexpr int64_t channels = 64;  // of a patch
  Shapes out;
  add_linear(out, "first", hidden, channels);
  add_linear(out, "tmlp.0", hidden, sinusoid);
  add_linear(out, "tmlp.2", hidden, hidden);
  add_linear(out, "tproj.1", 6 * hidden, hidden);
  add_linear(out, "txtfusion.projector", 1, states, false);
  for (const char* part : {"layerwise", "refiner"})
    for (int i = 0; i < 2; ++i) block(out, fmt::format("txtfusion.{}_blocks.{}", part, i), text, text, text_inner);
  out["txtmlp.0.scale"] = {DType::bf16, {text}};
  add_linear(out, "txtmlp.1", hidden, text);
  add_linear(out, "txtmlp.3", hidden, hidden);
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string name = fmt::format("blocks.{}", i);
    out[name + ".mod.lin"] = {DType::bf16, {6 * hidden}};
    block(out, name, hidden, hidden / group, inner);
  }
  out["last.norm.scale"] = {DType::bf16, {hidden}};
  out["last.modulation.lin"] = {DType::bf16, {2, hidden}};
  add_linear(out, "last.linear", channels, hidden);
  return out;
}

void add_small_qwen3_vl(Shapes& shapes, const std::string& prefix, int64_t words) {
  constexpr int64_t layers = 5;
  add_llm(shapes, prefix, {small_krea2.text, layers, 2, 128, words});
}

void add_qwen3_vision(Shapes& shapes, const std::string& prefix, int64_t width) {
  constexpr int64_t hidden = 64, inner = 48, layers = 4, places = 9, square = 4 * hidden;
  const auto add_norm = [&](const std::string& name, int64_t numbers) {
    for (const char* part : {".weight", ".bias"}) shapes[prefix + name + part] = {DType::bf16, {numbers}};
  };
  const auto add_merger = [&](const std::string& name, int64_t normed) {
    add_norm(name + ".norm", normed);
    add_linear(shapes, prefix + name + ".linear_fc1", square, square);
    add_linear(shapes, prefix + name + ".linear_fc2", width, square);
  };
  shapes[prefix + "patch_embed.proj.weight"] = {DType::bf16, {hidden, 3, 2, 16, 16}};
  shapes[prefix + "patch_embed.proj.bias"] = {DType::bf16, {hidden}};
  shapes[prefix + "pos_embed.weight"] = {DType::bf16, {places, hidden}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    for (const char* norm : {"norm1", "norm2"}) add_norm(block + norm, hidden);
    add_linear(shapes, prefix + block + "attn.qkv", 3 * hidden, hidden);
    add_linear(shapes, prefix + block + "attn.proj", hidden, hidden);
    add_linear(shapes, prefix + block + "mlp.linear_fc1", inner, hidden);
    add_linear(shapes, prefix + block + "mlp.linear_fc2", hidden, inner);
  }
  add_merger("merger", hidden);
  for (int i = 0; i < 3; ++i) add_merger(fmt::format("deepstack_merger_list.{}", i), square);
}

void write_small_krea2(const std::filesystem::path& path) {
  constexpr int64_t words = 151669;
  Shapes text;
  add_small_qwen3_vl(text, "text_encoders.qwen3vl_4b.transformer.", words);
  add_qwen3_vision(text, "text_encoders.qwen3vl_4b.transformer.visual.", small_krea2.text);
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] : {std::pair{std::string("model.diffusion_model."), filled(small_krea2.shapes())},
                                        std::pair{std::string("vae."), golden_weights("vae_qwen_image_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
