// Names and shapes of AuraFlow.
#include "support/auraflow_shapes.h"

#include <fmt/core.h>

#include "support/model_shapes.h"
#include "support/wan_shapes.h"

namespace lh::test {

Shapes AuraFlowDit::shapes() const {
  constexpr int64_t patch = 16, sinusoid = 256, registers = 8;
  Shapes out;
  const auto linear = [&](const std::string& module, int64_t rows, int64_t columns) {
    add_linear(out, module, rows, columns, false);
  };
  const auto stream = [&](const std::string& block, const std::string& modulation, const std::string& attention,
                          const std::string& mlp) {
    linear(block + modulation + ".1", 6 * hidden, hidden);
    for (const char* part : {"q", "k", "v", "o"}) linear(block + "attn." + attention + part, hidden, hidden);
    for (const char* part : {".c_fc1", ".c_fc2"}) linear(block + mlp + part, inner, hidden);
    linear(block + mlp + ".c_proj", hidden, inner);
  };
  add_linear(out, "init_x_linear", hidden, patch);
  add_linear(out, "t_embedder.mlp.0", hidden, sinusoid);
  add_linear(out, "t_embedder.mlp.2", hidden, hidden);
  linear("cond_seq_linear", hidden, text);
  linear("modF.1", 2 * hidden, hidden);
  linear("final_linear", patch, hidden);
  out["positional_encoding"] = {DType::bf16, {1, grid * grid, hidden}};
  out["register_tokens"] = {DType::bf16, {1, registers, hidden}};
  for (int64_t i = 0; i < double_layers; ++i) {
    stream(fmt::format("double_layers.{}.", i), "modX", "w2", "mlpX");
    stream(fmt::format("double_layers.{}.", i), "modC", "w1", "mlpC");
  }
  for (int64_t i = 0; i < single_layers; ++i) stream(fmt::format("single_layers.{}.", i), "modCX", "w1", "mlp");
  return out;
}

std::map<std::string, std::vector<Given>> small_auraflow_parts() {
  constexpr int64_t words = 384;
  Shapes text;
  add_umt5(text, "", small_auraflow.text, 2, words);
  return {{"vae", golden_weights("vae_sdxl_encode")}, {"pile_t5", filled(text)}};
}

void write_small_auraflow(const std::filesystem::path& path) {
  std::vector<Given> all;
  const auto add = [&](const std::string& prefix, const std::vector<Given>& tensors) {
    for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
  };
  const std::map<std::string, std::vector<Given>> parts = small_auraflow_parts();
  add("model.", filled(small_auraflow.shapes()));
  add("vae.", parts.at("vae"));
  add("text_encoders.pile_t5xl.transformer.", parts.at("pile_t5"));
  write_file(path, all);
}

}  // namespace lh::test
