// The graph of the Flux.1 transformer.
//
//   vec = time_in(1000 t) [+ guidance_in(1000 guidance)] + vector_in(pooled)                    [B, h]
//   double blocks: text and image tokens with weights of their own, one attention over text then image
//   single blocks: one sequence [B, L + S, h]; attention and mlp side by side
//   final layer:   modulated norm and a linear back to 2x2 patches
// Rotary ids: text (0, 0, 0), image (0, row, column).
#include "denoiser.h"

#include "nn/mmdit.hpp"

namespace flux {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr std::array<int64_t, 3> rope_axes = {16, 56, 56};

// Name of an RMS scale; files of some tools call it .weight.
std::string norm_name(Graph& g, const std::string& module) {
  return module + (g.weights().has(module + ".weight") ? ".weight" : ".scale");
}

nn::RopeTables rope(Graph& g, int64_t text_length, int64_t rows, int64_t columns) {
  std::vector<std::array<int64_t, 3>> ids(static_cast<size_t>(text_length), {0, 0, 0});
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) ids.push_back({0, row, column});
  return nn::rope_tables(g, ids, rope_axes, 10000.0);
}

nn::JointStream stream(Graph& g, const std::string& name, Value x) {  // "double_blocks.3.img"
  return nn::JointStream(g,
                         {.modulation = name + "_mod.lin",
                          .qkv = name + "_attn.qkv",
                          .q_norm = norm_name(g, name + "_attn.norm.query_norm"),
                          .k_norm = norm_name(g, name + "_attn.norm.key_norm"),
                          .proj = name + "_attn.proj",
                          .fc1 = name + "_mlp.0",
                          .fc2 = name + "_mlp.2"},
                         x);
}

void double_block(Graph& g, const std::string& block, Value& img, Value& txt, Value activated,
                  const nn::RopeTables& rope) {
  auto scope = g.scope(block, LH_SCOPE_CHECKPOINT);
  nn::JointStream image = stream(g, block + ".img", img), text = stream(g, block + ".txt", txt);
  nn::Qkv image_qkv = image.qkv(activated, 6, Dimensions::head_dim);
  nn::Qkv text_qkv = text.qkv(activated, 6, Dimensions::head_dim);
  nn::JointAttention attention = nn::joint_attention(g, text_qkv, image_qkv, rope);
  image.attend(attention.second);
  image.feed_forward();
  text.attend(attention.first);
  text.feed_forward();
  img = image.x();
  txt = text.x();
}

Value single_block(Graph& g, const std::string& block, Value x, Value activated, const nn::RopeTables& rope) {
  auto scope = g.scope(block, LH_SCOPE_CHECKPOINT);
  std::vector<Value> mod = nn::modulation(g, activated, block + ".modulation.lin", 3);
  Value wide = g.linear(nn::modulated_norm(g, x, mod[0], mod[1]), block + ".linear1");  // [B, S, 3h + mlp]
  int64_t h = g.shape(x)[2];
  std::vector<Value> parts = g.split(wide, -1, {h, h, h, g.shape(wide)[2] - 3 * h});
  nn::Qkv qkv = nn::heads(g, parts[0], parts[1], parts[2], Dimensions::head_dim,
                          norm_name(g, block + ".norm.query_norm"), norm_name(g, block + ".norm.key_norm"));
  Value attention = nn::self_attention(g, qkv, rope);
  Value y = g.linear(g.concat({attention, g.gelu(parts[3], "tanh")}, -1), block + ".linear2");
  return nn::gated(g, x, mod[2], y);
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value pooled = g.input("pooled", {batch, dims.pooled});
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value vec = nn::timestep_embedder(g, timestep, 1000.0, "time_in", "in_layer", "out_layer");
  if (dims.guidance) {
    Value guidance = g.input("guidance", {batch}, LH_F32);
    vec = g.add(vec, nn::timestep_embedder(g, guidance, 1000.0, "guidance_in", "in_layer", "out_layer"));
  }
  vec = g.add(vec, nn::embedder(g, pooled, "vector_in", "in_layer", "out_layer"));
  Value activated = g.silu(vec);  // every modulation starts with it

  Value img = g.linear(nn::patchify_channel_first(g, latents, Dimensions::patch), "img_in");  // [B, S, h]
  Value txt = g.linear(text, "txt_in");                                                       // [B, L, h]
  nn::RopeTables tables = rope(g, length, height / Dimensions::patch, width / Dimensions::patch);

  for (int64_t i = 0; i < dims.double_blocks; ++i)
    double_block(g, "double_blocks." + std::to_string(i), img, txt, activated, tables);
  Value x = g.concat({txt, img}, 1);
  for (int64_t i = 0; i < dims.single_blocks; ++i)
    x = single_block(g, "single_blocks." + std::to_string(i), x, activated, tables);
  x = g.slice(x, 1, length, g.shape(img)[1]);

  std::vector<Value> mod = nn::modulation(g, activated, "final_layer.adaLN_modulation.1", 2);
  x = g.linear(nn::modulated_norm(g, x, mod[0], mod[1]), "final_layer.linear");
  g.output("output", nn::unpatchify_channel_first(g, x, height, width, Dimensions::patch));
}

}  // namespace flux
