// Names and shapes of Flux2.
#include "support/flux2_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"

namespace lh::test {

Shapes Flux2::shapes() const {
  constexpr int64_t channels = 128, time = 256;  // of the latents; of the sinusoids
  const int64_t h = hidden, inner = 3 * hidden;
  Shapes out;
  const auto linear = [&](const std::string& name, int64_t rows, int64_t columns) {
    add_linear(out, name, rows, columns, false);
  };
  const auto norms = [&](const std::string& name) {
    for (const char* norm : {".query_norm.scale", ".key_norm.scale"}) out[name + norm] = {DType::bf16, {128}};
  };
  linear("img_in", h, channels);
  linear("txt_in", h, text);
  for (const char* embedder : {"time_in", "guidance_in"}) {
    if (!guidance && embedder == std::string("guidance_in")) continue;
    linear(fmt::format("{}.in_layer", embedder), h, time);
    linear(fmt::format("{}.out_layer", embedder), h, h);
  }
  for (const char* stream : {"img", "txt"}) linear(fmt::format("double_stream_modulation_{}.lin", stream), 6 * h, h);
  linear("single_stream_modulation.lin", 3 * h, h);
  for (int64_t i = 0; i < double_blocks; ++i)
    for (const char* stream : {"img", "txt"}) {
      const std::string name = fmt::format("double_blocks.{}.{}", i, stream);
      linear(name + "_attn.qkv", 3 * h, h);
      linear(name + "_attn.proj", h, h);
      linear(name + "_mlp.0", 2 * inner, h);
      linear(name + "_mlp.2", h, inner);
      norms(name + "_attn.norm");
    }
  for (int64_t i = 0; i < single_blocks; ++i) {
    const std::string block = fmt::format("single_blocks.{}", i);
    linear(block + ".linear1", 3 * h + 2 * inner, h);
    linear(block + ".linear2", h, h + inner);
    norms(block + ".norm");
  }
  linear("final_layer.adaLN_modulation.1", 2 * h, h);
  linear("final_layer.linear", channels, h);
  return out;
}

void add_mistral(Shapes& shapes, const std::string& prefix, const LlmSize& size) {
  Shapes all;
  add_llm(all, prefix, size);
  for (const auto& [name, desc] : all)
    if (!name.ends_with("_norm.weight") && !name.ends_with("model.norm.weight")) shapes.emplace(name, desc);
}

void write_small_flux2(const std::filesystem::path& path, const Flux2& denoiser) {
  Shapes text;
  if (denoiser.guidance)
    add_mistral(text, "text_encoders.mistral3_24b.transformer.", {small_flux2_encoder, 4, 2, 64, 278});
  else
    add_llm(text, "text_encoders.qwen3_4b.transformer.", {small_flux2_encoder, 4, 2, 64, 1626});
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] : {std::pair{std::string("model.diffusion_model."), filled(denoiser.shapes())},
                                        std::pair{std::string("vae."), golden_weights("vae_flux2_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
