// Names and shapes of HiDream-I1.
#include "support/hidream_shapes.h"

#include <fmt/core.h>

#include "support/flux2_shapes.h"
#include "support/hunyuan_video1_shapes.h"
#include "support/model_shapes.h"

namespace lh::test {

Shapes HiDreamDit::shapes() const {
  constexpr int64_t patch = 64, sinusoid = 256, experts = 4;
  Shapes out;
  const auto swiglu = [&](const std::string& module, int64_t inner) {
    add_linear(out, module + ".w1", inner, hidden, false);
    add_linear(out, module + ".w2", hidden, inner, false);
    add_linear(out, module + ".w3", inner, hidden, false);
  };
  add_linear(out, "x_embedder.proj", hidden, patch);
  add_linear(out, "t_embedder.timestep_embedder.linear_1", hidden, sinusoid);
  add_linear(out, "t_embedder.timestep_embedder.linear_2", hidden, hidden);
  add_linear(out, "p_embedder.pooled_embedder.linear_1", hidden, pooled);
  add_linear(out, "p_embedder.pooled_embedder.linear_2", hidden, hidden);
  add_linear(out, "final_layer.adaLN_modulation.1", 2 * hidden, hidden);
  add_linear(out, "final_layer.linear", patch, hidden);
  const int64_t blocks = double_blocks + single_blocks;
  for (int64_t i = 0; i <= blocks; ++i)
    add_linear(out, fmt::format("caption_projection.{}.linear", i), hidden, i < blocks ? llama : t5, false);
  for (int64_t i = 0; i < blocks; ++i) {
    const bool text = i < double_blocks;
    const std::string block = text ? fmt::format("double_stream_blocks.{}.block.", i)
                                   : fmt::format("single_stream_blocks.{}.block.", i - double_blocks);
    add_linear(out, block + "adaLN_modulation.1", (text ? 12 : 6) * hidden, hidden);
    for (const std::string end : {"", "_t"}) {
      if (end == "_t" && !text) continue;
      for (const char* part : {"to_q", "to_k", "to_v", "to_out"})
        add_linear(out, block + "attn1." + part + end, hidden, hidden);
      for (const char* norm : {"q_rms_norm", "k_rms_norm"})
        out[block + "attn1." + norm + end + ".weight"] = {DType::bf16, {hidden}};
    }
    out[block + "ff_i.gate.weight"] = {DType::bf16, {experts, hidden}};
    swiglu(block + "ff_i.shared_experts", shared);
    for (int64_t e = 0; e < experts; ++e) swiglu(fmt::format("{}ff_i.experts.{}", block, e), expert);
    if (text) swiglu(block + "ff_t", expert);
  }
  return out;
}

void add_projected_clip(Shapes& shapes, const std::string& prefix, int64_t width, int64_t tokens) {
  add_clip(shapes, prefix, width, 1, clip_words);
  shapes[prefix + "text_model.embeddings.position_embedding.weight"].shape = {tokens, width};
  shapes[prefix + "text_projection.weight"] = {DType::bf16, {width, width}};
}

std::map<std::string, std::vector<Given>> small_hidream_parts() {
  constexpr int64_t t5_words = 32128;
  Shapes clip, t5, llama;
  add_projected_clip(clip, "", small_hidream.pooled / 2);
  add_t5(t5, "", small_hidream.t5, 1, t5_words);
  add_mistral(llama, "", {small_hidream.llama, 3, 2, 64, small_llama3_words});
  llama["model.norm.weight"] = {DType::bf16, {small_hidream.llama}};
  return {{"vae", golden_weights("vae_flux_encode")},
          {"clip_l", filled(clip)},
          {"clip_g", filled(clip)},
          {"t5", filled(t5)},
          {"llama3", filled(llama)}};
}

void write_small_hidream(const std::filesystem::path& path) {
  std::vector<Given> all;
  const auto add = [&](const std::string& prefix, const std::vector<Given>& tensors) {
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  };
  add("model.diffusion_model.", filled(small_hidream.shapes()));
  const std::map<std::string, std::string> prefixes{{"vae", "vae."},
                                                    {"clip_l", "text_encoders.clip_l.transformer."},
                                                    {"clip_g", "text_encoders.clip_g.transformer."},
                                                    {"t5", "text_encoders.t5xxl.transformer."},
                                                    {"llama3", "text_encoders.llama.transformer."}};
  for (const auto& [name, tensors] : small_hidream_parts()) add(prefixes.at(name), tensors);
  write_file(path, all);
}

}  // namespace lh::test
