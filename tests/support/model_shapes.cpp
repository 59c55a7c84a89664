// Names and shapes, family by family.
#include "support/model_shapes.h"

#include "support/golden.h"
#include "support/paths.h"

namespace lh::test {
namespace {

constexpr int64_t clip_words = 49408, t5_words = 32128;  // of their tokenizers

void conv(Shapes& out, const std::string& name, int64_t o, int64_t i, int64_t k) {
  out[name + ".weight"] = {DType::bf16, {o, i, k, k}};
  out[name + ".bias"] = {DType::bf16, {o}};
}

void embedder(Shapes& out, const std::string& name, int64_t wide, int64_t from) {
  add_linear(out, name + ".0", wide, from);
  add_linear(out, name + ".2", wide, wide);
}

void append(std::vector<Given>& all, const std::string& prefix, std::vector<Given> tensors) {
  for (Given& t : tensors) all.push_back({prefix + t.name, std::move(t.tensor)});
}

}  // namespace

Shapes Mmdit::shapes() const {
  const int64_t h = hidden;
  Shapes out;
  out["pos_embed"] = {DType::bf16, {1, grid * grid, h}};
  out["x_embedder.proj.weight"] = {DType::bf16, {h, 16, 2, 2}};
  out["x_embedder.proj.bias"] = {DType::bf16, {h}};
  add_linear(out, "context_embedder", h, text);
  for (const auto& [name, in] : {std::pair<std::string, int64_t>{"t", 256}, {"y", pooled}}) {
    add_linear(out, name + "_embedder.mlp.0", h, in);
    add_linear(out, name + "_embedder.mlp.2", h, h);
  }
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("joint_blocks.{}.", i);
    stream(out, block + "x_block.", i < dual ? 9 : 6);
    stream(out, block + "context_block.", i + 1 < blocks ? 6 : 2);
  }
  add_linear(out, "final_layer.adaLN_modulation.1", 2 * h, h);
  add_linear(out, "final_layer.linear", 64, h);
  return out;
}

void Mmdit::stream(Shapes& out, const std::string& name, int64_t pieces) const {
  add_linear(out, name + "adaLN_modulation.1", pieces * hidden, hidden);
  for (const char* attention : {"attn.", "attn2."}) {
    if (attention == std::string("attn2.") && pieces != 9) continue;
    add_linear(out, name + attention + "qkv", 3 * hidden, hidden);
    if (pieces > 2) add_linear(out, name + attention + "proj", hidden, hidden);
    for (const char* norm : {"ln_q.weight", "ln_k.weight"})
      if (qk_norm) out[name + attention + norm] = {DType::bf16, {64}};
  }
  if (pieces == 2) return;
  add_linear(out, name + "mlp.fc1", 4 * hidden, hidden);
  add_linear(out, name + "mlp.fc2", hidden, 4 * hidden);
}

Shapes FluxBlocks::shapes() const {
  const int64_t h = hidden, mlp = 4 * h;
  Shapes out;
  const auto norms = [&](const std::string& name) {
    for (const char* side : {".query_norm.scale", ".key_norm.scale"}) out[name + side] = {DType::bf16, {128}};
  };
  add_linear(out, "img_in", h, 64);
  add_linear(out, "txt_in", h, text);
  for (int64_t i = 0; i < double_blocks; ++i)
    for (const char* stream : {"img", "txt"}) {
      const std::string block = fmt::format("double_blocks.{}.{}_", i, stream);
      add_linear(out, block + "attn.qkv", 3 * h, h);
      add_linear(out, block + "attn.proj", h, h);
      add_linear(out, block + "mlp.0", mlp, h);
      add_linear(out, block + "mlp.2", h, mlp);
      norms(block + "attn.norm");
    }
  for (int64_t i = 0; i < single_blocks; ++i) {
    const std::string block = fmt::format("single_blocks.{}.", i);
    add_linear(out, block + "linear1", 3 * h + mlp, h);
    add_linear(out, block + "linear2", h, h + mlp);
    norms(block + "norm");
  }
  add_linear(out, "final_layer.linear", 64, h);
  return out;
}

Shapes Chroma::shapes() const {
  Shapes out = FluxBlocks::shapes();
  const std::string root = "distilled_guidance_layer.";
  add_linear(out, root + "in_proj", wide, 64);
  add_linear(out, root + "out_proj", hidden, wide);
  for (int64_t i = 0; i < layers; ++i) {
    for (const char* part : {"in_layer", "out_layer"})
      add_linear(out, fmt::format("{}layers.{}.{}", root, i, part), wide, wide);
    out[fmt::format("{}norms.{}.scale", root, i)] = {DType::bf16, {wide}};
  }
  return out;
}

Shapes Radiance::shapes() const {
  Shapes out = Chroma::shapes();
  std::erase_if(out, [](const auto& item) {
    return item.first.starts_with("img_in.") || item.first.starts_with("final_layer.");
  });
  const auto conv = [&](const std::string& name, Shape weight) {
    out[name + ".bias"] = {DType::bf16, {weight[0]}};
    out[name + ".weight"] = {DType::bf16, std::move(weight)};
  };
  conv("img_in_patch", {hidden, 3, patch, patch});
  add_linear(out, "nerf_image_embedder.embedder.0", width, 3 + frequencies * frequencies);
  for (int64_t i = 0; i < head_blocks; ++i) {
    const std::string block = fmt::format("nerf_blocks.{}.", i);
    add_linear(out, block + "param_generator", 3 * width * inner, hidden);
    out[block + "norm.scale"] = {DType::bf16, {width}};
  }
  const std::string last = sees_neighbours ? "nerf_final_layer_conv." : "nerf_final_layer.";
  out[last + "norm.scale"] = {DType::bf16, {width}};
  if (sees_neighbours)
    conv(last + "conv", {3, width, 3, 3});
  else
    add_linear(out, last + "linear", 3, width);
  if (gives_picture) out["__x0__"] = {DType::bf16, {0}};
  return out;
}

Shapes Unet::shapes() const {
  Shapes out;
  const int64_t wide = 4 * channels;
  embedder(out, "time_embed", wide, channels);
  if (label > 0) embedder(out, "label_emb.0", wide, label);
  conv(out, "input_blocks.0.0", channels, in, 3);
  std::vector<int64_t> kept{channels};
  int64_t c = channels, block = 0;
  for (int64_t level = 0; level < 3; ++level) {
    for (int64_t i = 0; i < res_blocks; ++i) {
      const std::string name = fmt::format("input_blocks.{}.", ++block);
      res(out, name + "0", channels << level, c);
      kept.push_back(c = channels << level);
      transformer(out, name + "1", c, down[static_cast<size_t>(level * res_blocks + i)]);
    }
    if (level == 2) break;
    conv(out, fmt::format("input_blocks.{}.0.op", ++block), c, c, 3);
    kept.push_back(c);
  }
  if (middle >= 0) res(out, "middle_block.0", c, c);
  if (middle > 0) {
    transformer(out, "middle_block.1", c, middle);
    res(out, "middle_block.2", c, c);
  }
  block = 0;
  for (int64_t level = 2; level >= 0; --level)
    for (int64_t i = 0; i <= res_blocks; ++i, ++block) {
      const std::string name = fmt::format("output_blocks.{}.", block);
      res(out, name + "0", channels << level, c + kept.back());
      kept.pop_back();
      c = channels << level;
      const int64_t depth = up[static_cast<size_t>(block)];
      transformer(out, name + "1", c, depth);
      if (level > 0 && i == res_blocks) conv(out, name + (depth > 0 ? "2" : "1") + ".conv", c, c, 3);
    }
  add_norm(out, "out.0", channels);
  conv(out, "out.2", 4, channels, 3);
  return out;
}

void Unet::res(Shapes& out, const std::string& name, int64_t o, int64_t i) const {
  add_norm(out, name + ".in_layers.0", i);
  conv(out, name + ".in_layers.2", o, i, 3);
  add_linear(out, name + ".emb_layers.1", o, 4 * channels);
  add_norm(out, name + ".out_layers.0", o);
  conv(out, name + ".out_layers.3", o, o, 3);
  if (o != i) conv(out, name + ".skip_connection", o, i, 1);
}

void Unet::transformer(Shapes& out, const std::string& name, int64_t c, int64_t depth) const {
  if (depth == 0) return;
  add_norm(out, name + ".norm", c);
  add_linear(out, name + ".proj_in", c, c);
  add_linear(out, name + ".proj_out", c, c);
  for (int64_t t = 0; t < depth; ++t) {
    const std::string block = fmt::format("{}.transformer_blocks.{}.", name, t);
    for (const char* norm : {"norm1", "norm2", "norm3"}) add_norm(out, block + norm, c);
    for (const char* attention : {"attn1.", "attn2."}) {
      const int64_t from = attention == std::string("attn1.") ? c : context;
      add_linear(out, block + attention + "to_q", c, c, false);
      add_linear(out, block + attention + "to_k", c, from, false);
      add_linear(out, block + attention + "to_v", c, from, false);
      add_linear(out, block + attention + "to_out.0", c, c);
    }
    add_linear(out, block + "ff.net.0.proj", 8 * c, c);
    add_linear(out, block + "ff.net.2", c, 4 * c);
  }
}

std::vector<Given> golden_weights(const std::string& golden_case) {
  const golden::Case golden(std::filesystem::path(test_data()) / "golden" / golden_case);
  std::vector<Given> all;
  for (const auto& [key, spec] : golden.json.at("weights").items()) all.push_back({key, golden.tensor(key, spec)});
  return all;
}

void write_small_sd35(const std::filesystem::path& path, const Mmdit& denoiser, bool with_t5) {
  Shapes text;
  add_clip(text, "text_encoders.clip_l.transformer.", 64, 2, clip_words);
  add_clip(text, "text_encoders.clip_g.transformer.", 64, 2, clip_words);
  text["text_encoders.clip_g.transformer.text_projection.weight"] = {DType::bf16, {64, 64}};
  if (with_t5) add_t5(text, "text_encoders.t5xxl.transformer.", denoiser.text, 2, t5_words);
  std::vector<Given> all = filled(text);
  append(all, "model.diffusion_model.", filled(denoiser.shapes()));
  append(all, "first_stage_model.", golden_weights("vae_sd35_encode"));
  write_file(path, all);
}

void write_small_chroma(const std::filesystem::path& path) {
  Shapes text;
  add_t5(text, "text_encoders.t5xxl.transformer.", small_chroma.text, 2, t5_words);
  std::vector<Given> all = filled(text);
  append(all, "model.diffusion_model.", filled(small_chroma.shapes()));
  append(all, "vae.", golden_weights("vae_flux_encode"));
  write_file(path, all);
}

void write_small_radiance(const std::filesystem::path& path, const Radiance& denoiser) {
  Shapes text;
  add_t5(text, "text_encoders.t5xxl.transformer.", denoiser.text, 2, t5_words);
  std::vector<Given> all = filled(text);
  append(all, "model.diffusion_model.", filled(denoiser.shapes()));
  write_file(path, all);
}

void write_small_flux_dev(const std::filesystem::path& path) {
  std::vector<Given> all = tensors_of(toy_folder() / "flux_toy.safetensors");
  const std::string time = "time_in.", guidance = "guidance_in.";
  for (size_t i = 0, count = all.size(); i < count; ++i)
    if (all[i].name.starts_with(time)) all.push_back({guidance + all[i].name.substr(time.size()), all[i].tensor});
  write_file(path, all);
}

void write_small_flux_fill(const std::filesystem::path& path) {
  write_small_flux_dev(path);
  std::vector<Given> all = tensors_of(path);
  for (Given& given : all) {
    if (given.name != "img_in.weight") continue;
    const int64_t rows = given.tensor.desc.shape[0];
    given.tensor = filled({{"img_in.weight", {given.tensor.desc.dtype, {rows, 384}}}}).front().tensor;
  }
  write_file(path, all);
}

void write_small_sdxl(const std::filesystem::path& path, const std::vector<std::string>& markers, const Unet& unet) {
  Shapes text;
  add_clip(text, "text_encoders.clip_l.transformer.", 64, 2, clip_words);
  add_clip(text, "text_encoders.clip_g.transformer.", 128, 2, clip_words);
  text["text_encoders.clip_g.transformer.text_projection.weight"] = {DType::bf16, {128, 128}};
  std::vector<Given> all = filled(text);
  append(all, "diffusion_model.", filled(unet.shapes()));
  append(all, "vae.", golden_weights("vae_sdxl_encode"));
  for (const std::string& marker : markers) all.push_back({marker, HostTensor(Desc{DType::f32, {0}})});
  write_file(path, all);
}

}  // namespace lh::test
