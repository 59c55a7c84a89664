// Names and shapes of Anima.
#include "support/anima_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"
#include "support/z_image_shapes.h"

namespace lh::test {
namespace {

void add_norm_weight(Shapes& shapes, const std::string& name, int64_t width) {
  shapes[name + ".weight"] = {DType::bf16, {width}};
}

}  // namespace

Shapes AnimaDit::shapes() const {
  constexpr int64_t head = 128, places = 4, channels = 16;  // places of a patch; channels of the latents
  Shapes out;
  const auto plain = [&](const std::string& name, int64_t rows, int64_t columns) {
    add_linear(out, name, rows, columns, false);
  };
  const auto modulation = [&](const std::string& name, int64_t pieces) {
    plain(name + ".1", waist, hidden);
    plain(name + ".2", pieces * hidden, waist);
  };
  plain("x_embedder.proj.1", hidden, (channels + 1) * places);
  plain("t_embedder.1.linear_1", hidden, hidden);
  plain("t_embedder.1.linear_2", 3 * hidden, hidden);
  add_norm_weight(out, "t_embedding_norm", hidden);
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    for (const auto& [part, seen] : {std::pair{"self_attn", hidden}, std::pair{"cross_attn", text}}) {
      plain(block + part + ".q_proj", hidden, hidden);
      plain(block + part + ".k_proj", hidden, seen);
      plain(block + part + ".v_proj", hidden, seen);
      plain(block + part + ".output_proj", hidden, hidden);
      add_norm_weight(out, block + part + ".q_norm", head);
      add_norm_weight(out, block + part + ".k_norm", head);
    }
    plain(block + "mlp.layer1", inner, hidden);
    plain(block + "mlp.layer2", hidden, inner);
    for (const char* part : {"self_attn", "cross_attn", "mlp"}) modulation(block + "adaln_modulation_" + part, 3);
  }
  modulation("final_layer.adaln_modulation", 2);
  plain("final_layer.linear", channels * places, hidden);
  return out;
}

void add_anima_adapter(Shapes& shapes, const std::string& prefix, const AnimaAdapter& size) {
  constexpr int64_t head = 64;
  const int64_t d = size.width;
  shapes[prefix + "embed.weight"] = {DType::bf16, {size.words, d}};
  for (int64_t i = 0; i < size.blocks; ++i) {
    const std::string block = fmt::format("{}blocks.{}.", prefix, i);
    for (const auto& [part, seen] : {std::pair{"self_attn", d}, std::pair{"cross_attn", size.source}}) {
      add_linear(shapes, block + part + ".q_proj", d, d, false);
      add_linear(shapes, block + part + ".k_proj", d, seen, false);
      add_linear(shapes, block + part + ".v_proj", d, seen, false);
      add_linear(shapes, block + part + ".o_proj", d, d, false);
      add_norm_weight(shapes, block + part + ".q_norm", head);
      add_norm_weight(shapes, block + part + ".k_norm", head);
      add_norm_weight(shapes, block + "norm_" + part, d);
    }
    add_norm_weight(shapes, block + "norm_mlp", d);
    add_linear(shapes, block + "mlp.0", size.inner, d);
    add_linear(shapes, block + "mlp.2", d, size.inner);
  }
  add_linear(shapes, prefix + "out_proj", d, d);
  add_norm_weight(shapes, prefix + "norm", d);
}

Shapes anima_file(const AnimaDit& dit, const AnimaAdapter& adapter) {
  Shapes all = dit.shapes();
  add_anima_adapter(all, "llm_adapter.", adapter);
  return all;
}

void write_small_anima(const std::filesystem::path& path) {
  constexpr int64_t words = 1626;
  Shapes text;
  add_llm(text, "text_encoders.qwen3_06b.transformer.", {small_anima_adapter.source, 2, 2, 128, words});
  std::vector<Given> all = filled(text);
  for (const auto& [prefix, tensors] :
       {std::pair{std::string("model.diffusion_model."), filled(anima_file(small_anima, small_anima_adapter))},
        std::pair{std::string("vae."), golden_weights("vae_qwen_image_encode")}})
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  write_file(path, all);
}

}  // namespace lh::test
