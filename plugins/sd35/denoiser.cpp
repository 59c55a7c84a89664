// The graph of the SD3.5 transformer.
//
//   vec = t_embedder(1000 sigma) + y_embedder(pooled)                      [B, h]
//   x   = conv(latents) + the middle of pos_embed                          [B, S, h]
//   c   = context_embedder(text)                                           [B, L, h]
//   joint blocks: x and c with weights of their own, one attention over c then x
//   final layer:  modulated norm and a linear back to patches, channels last
// Some blocks of the medium model have a second attention over x alone, between the first and the mlp. In the last
// block c only gives keys and values. q and k go through RMS norms (SD3 medium: none). Positions are those of
// pos_embed; there are no rotary ones.
#include "denoiser.h"

#include "nn/mmdit.hpp"

namespace sd35 {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Value;

namespace {

struct Builder {
  Graph& g;
  const Dimensions& dims;
  Value activated;  // silu(vec), where every modulation starts

  std::string norm(const std::string& name) const { return dims.qk_norm ? name + ".weight" : std::string(); }

  nn::JointStream stream(const std::string& name, Value x) const {  // "joint_blocks.3.x_block"
    return nn::JointStream(g,
                           {.modulation = name + ".adaLN_modulation.1",
                            .qkv = name + ".attn.qkv",
                            .q_norm = norm(name + ".attn.ln_q"),
                            .k_norm = norm(name + ".attn.ln_k"),
                            .proj = name + ".attn.proj",
                            .fc1 = name + ".mlp.fc1",
                            .fc2 = name + ".mlp.fc2"},
                           x);
  }

  // The image attends to itself: proj2(attention(qkv2((1 + scale2) norm(x) + shift2))).
  Value second_attention(const std::string& name, Value x, Value shift, Value scale) const {
    nn::Qkv qkv = nn::fused_qkv(g, nn::modulated_norm(g, x, shift, scale), name + ".qkv", Dimensions::head_dim,
                                norm(name + ".ln_q"), norm(name + ".ln_k"));
    return g.linear(nn::self_attention(g, qkv), name + ".proj");
  }

  void block(int64_t index, Value& x, Value& c) const {
    std::string name = "joint_blocks." + std::to_string(index);
    auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
    bool dual = dims.dual.contains(index), last = index + 1 == dims.blocks;
    nn::JointStream image = stream(name + ".x_block", x), text = stream(name + ".context_block", c);
    nn::Qkv image_qkv = image.qkv(activated, dual ? 9 : 6, Dimensions::head_dim);
    nn::Qkv text_qkv = text.qkv(activated, last ? 2 : 6, Dimensions::head_dim);
    nn::JointAttention attention = nn::joint_attention(g, text_qkv, image_qkv);
    Value second = dual ? second_attention(name + ".x_block.attn2", x, image.mod(6), image.mod(7)) : Value{};
    image.attend(attention.second);
    if (dual) image.add(8, second);
    image.feed_forward();
    x = image.x();
    if (last) return;
    text.attend(attention.first);
    text.feed_forward();
    c = text.x();
  }
};

Value embed_patches(Graph& g, const Dimensions& dims, Value latents, int64_t height, int64_t width) {
  int64_t h = height / dims.patch, w = width / dims.patch;
  if (h * dims.patch != height || w * dims.patch != width)
    throw Failure(LH_E_SETTING, "latents of " + std::to_string(height) + "x" + std::to_string(width) +
                                    " do not divide into patches of " + std::to_string(dims.patch));
  Value x = g.conv2d(latents, "x_embedder.proj", dims.patch);  // [B, h, w, hidden]
  x = g.reshape(x, {g.shape(x)[0], h * w, dims.hidden});
  const nn::GridCrop middle{(dims.grid - h) / 2, (dims.grid - w) / 2, h, w};
  return g.add(x, nn::cropped_positions(g, "pos_embed", dims.grid, middle, dims.patch));
}

std::set<int64_t> skipped_blocks(const Dimensions& dims, const lora_host::Sizes& sizes) {
  std::set<int64_t> skipped;
  for (int64_t index : sizes.list("skip_layers")) {
    if (index < 0 || index >= dims.blocks)
      throw Failure(LH_E_INVALID, "skip_layers: there is no block " + std::to_string(index) + "; the model has " +
                                      std::to_string(dims.blocks));
    skipped.insert(index);
  }
  return skipped;
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  std::set<int64_t> skipped = skipped_blocks(dims, sizes);
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value pooled = g.input("pooled", {batch, dims.pooled});
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value vec = g.add(nn::timestep_embedder(g, timestep, 1000.0, "t_embedder", "mlp.0", "mlp.2"),
                    nn::embedder(g, pooled, "y_embedder", "mlp.0", "mlp.2"));
  Builder builder{g, dims, g.silu(vec)};
  Value x = embed_patches(g, dims, latents, height, width);  // [B, S, h]
  Value c = g.linear(text, "context_embedder");              // [B, L, h]
  for (int64_t i = 0; i < dims.blocks; ++i)
    if (!skipped.contains(i)) builder.block(i, x, c);

  std::vector<Value> mod = nn::modulation(g, builder.activated, "final_layer.adaLN_modulation.1", 2);
  x = g.linear(nn::modulated_norm(g, x, mod[0], mod[1]), "final_layer.linear");
  g.output("output", nn::unpatchify_channel_last(g, x, height, width, dims.patch));
}

}  // namespace sd35
