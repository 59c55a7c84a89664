// Names and shapes of OmniGen2.
#include "support/omnigen2_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"
#include "support/qwen_image_shapes.h"

namespace lh::test {

Shapes OmniGen2Dit::shapes() const {
  constexpr int64_t channels = 64, sinusoid = 256, references = 5;  // channels: of a patch
  Shapes out;
  const auto norm = [&](const std::string& name, int64_t width) { out[name + ".weight"] = {DType::bf16, {width}}; };
  add_linear(out, "x_embedder", hidden, channels);
  add_linear(out, "ref_image_patch_embedder", hidden, channels);
  out["image_index_embedding"] = {DType::bf16, {references, hidden}};
  add_linear(out, "time_caption_embed.timestep_embedder.linear_1", time, sinusoid);
  add_linear(out, "time_caption_embed.timestep_embedder.linear_2", time, time);
  norm("time_caption_embed.caption_embedder.0", text);
  add_linear(out, "time_caption_embed.caption_embedder.1", hidden, text);
  add_linear(out, "norm_out.linear_1", hidden, time);
  add_linear(out, "norm_out.linear_2", channels, hidden);
  for (const std::string part : {"layers", "noise_refiner", "ref_image_refiner", "context_refiner"})
    for (int64_t i = 0; i < (part == "layers" ? layers : refiners); ++i) {
      const std::string block = fmt::format("{}.{}.", part, i);
      add_linear(out, block + "attn.to_q", hidden, hidden, false);
      add_linear(out, block + "attn.to_k", keys, hidden, false);
      add_linear(out, block + "attn.to_v", keys, hidden, false);
      add_linear(out, block + "attn.to_out.0", hidden, hidden, false);
      norm(block + "attn.norm_q", head);
      norm(block + "attn.norm_k", head);
      add_linear(out, block + "feed_forward.linear_1", inner, hidden, false);
      add_linear(out, block + "feed_forward.linear_2", hidden, inner, false);
      add_linear(out, block + "feed_forward.linear_3", inner, hidden, false);
      for (const char* name : {"norm2", "ffn_norm1", "ffn_norm2"}) norm(block + name, hidden);
      if (part == "context_refiner") {
        norm(block + "norm1", hidden);
        continue;
      }
      norm(block + "norm1.norm", hidden);
      add_linear(out, block + "norm1.linear", 4 * hidden, time);
    }
  return out;
}

void write_small_omnigen2(const std::filesystem::path& path) {
  constexpr int64_t words = 1626;
  Shapes text;
  add_qwen2_5(text, "text_encoders.qwen25_3b.transformer.", small_omnigen2.text, words);
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] :
       {std::pair{std::string("model.diffusion_model."), filled(small_omnigen2.shapes())},
        std::pair{std::string("vae."), golden_weights("vae_flux_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
