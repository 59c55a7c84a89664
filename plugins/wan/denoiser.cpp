// The graph of the Wan transformer, of latents with an axis of time.
//
//   text = mlp(text), t = time_embedding(1000 sigma), e = time_projection(silu t)                  [B, 6, h]
//   x    = patch_embedding(patches); then in each block, with (e + table) cut into shift, scale, gate twice:
//   x   += gate self_attn((1 + scale) norm(x) + shift);  x += cross_attn(norm3(x), text)
//   x   += gate ffn((1 + scale) norm(x) + shift)
//   velocity = patches of head((1 + scale) norm(x) + shift), of t + head.modulation
//
// Models that are shown what a clip begins with have it behind the noisy latents, as channels: which frames of each
// place are given, 1 or 0, and the latents of a clip that is grey behind its first frame. Those that see it by an image
// encoder, too, ask its states with the same queries, and add the answers:
//   image = norm(linear(gelu(linear(norm(image)))));  cross_attn = o(attention(q, k, v) + attention(q, k_img, v_img))
// Others may have it in place of their first noisy latents (nn/first_frame.hpp), and are told time 0 of its tokens:
// then all that follows from the time is one for each frame of latents, and x is [B t, n, h] but in attention.
//
// Norms of q and k go over the whole width. Tokens are ordered by frame, row and column, and these are their positions,
// of which self attention alone knows. Patches lie within a frame; they are read channel first and written channel
// last, as a convolution of 2x2 and a linear of pixels.
#include "denoiser.h"

#include <algorithm>

#include "nn/first_frame.hpp"
#include "nn/mmdit.hpp"
#include "nn/video_positions.hpp"

namespace wan {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-6;

// The convolution of patches as a product: its kernel is as large as its step.
Value patches(Graph& g, Value latents, int64_t hidden) {
  const lora_host::Dims d = g.shape(latents);  // [B, t, H, W, C]
  Value x = nn::patchify_channel_first(g, g.reshape(latents, {d[0] * d[1], d[2], d[3], d[4]}), Dimensions::patch);
  const lora_host::Dims of_frame = g.shape(x);  // [B t, H W / 4, 4 C]
  x = g.reshape(x, {d[0], d[1] * of_frame[1], of_frame[2]});
  Value weight = g.reshape(g.param("patch_embedding.weight"), {hidden, g.shape(x)[2]});
  return g.linear(x, weight, g.param("patch_embedding.bias"));
}

// [B, t, H, W, C] -> [B, t, H, W, C + 4 + C]
Value behind_noise(Graph& g, Value latents) {
  const lora_host::Dims d = g.shape(latents);
  constexpr int64_t frames = Dimensions::frames_of_latent;
  std::vector<float> given(static_cast<size_t>(d[1] * frames), 0.0f);
  std::fill_n(given.begin(), frames, 1.0f);  // the first place is of one frame, which counts as all of them
  Value mask = g.cast(g.constant({1, d[1], 1, 1, frames}, given), LH_FLOAT);
  return g.concat({latents, g.expand(mask, {d[0], d[1], d[2], d[3], frames}), g.input("first_frame", d)}, -1);
}

// Pieces [B, 1, h] of e [B, n, h] or [B, 1, h] + the learned table [1, n, h].
std::vector<Value> modulation(Graph& g, Value e, const std::string& table, int64_t pieces) {
  return g.split(g.add(g.param(table), e), 1, std::vector<int64_t>(static_cast<size_t>(pieces), 1));
}

// Tokens `x` ask `seen`, which are the same in self attention, and the states of a picture where there are some.
Value attention(Graph& g, const std::string& module, Value x, Value seen, const nn::RopeTables& rope, Value image) {
  Value q = g.rms_norm(g.linear(x, module + ".q"), module + ".norm_q", eps);
  Value k = g.rms_norm(g.linear(seen, module + ".k"), module + ".norm_k", eps);
  Value v = g.linear(seen, module + ".v");
  const nn::Qkv heads = nn::heads(g, q, k, v, Dimensions::head_dim, "", "");
  Value y = nn::self_attention(g, heads, rope);
  if (image) {
    Value k_img = g.rms_norm(g.linear(image, module + ".k_img"), module + ".norm_k_img", eps);
    nn::Qkv shown = nn::heads(g, {}, k_img, g.linear(image, module + ".v_img"), Dimensions::head_dim, "", "");
    shown.q = heads.q;
    y = g.add(y, nn::self_attention(g, shown));
  }
  return g.linear(y, module + ".o");
}

// What the blocks ask of a picture [B, N, I] -> [B, N, h]. Its norms have another eps.
Value image_states(Graph& g, Value image) {
  constexpr double norm_eps = 1e-5;
  Value x = g.layer_norm(image, "img_emb.proj.0", norm_eps);
  x = g.linear(g.gelu(g.linear(x, "img_emb.proj.1"), "erf"), "img_emb.proj.3");
  return g.layer_norm(x, "img_emb.proj.4", norm_eps);
}

// What cross attention asks.
struct Asked {
  Value text, image;  // image: absent where the model is shown none
};

Value block(Graph& g, const std::string& name, Value x, Value e, const Asked& asked, const nn::RopeTables& rope) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  const std::vector<Value> mod = modulation(g, e, name + ".modulation", 6);  // shift, scale, gate; the same of the ffn
  const int64_t batch = g.shape(asked.text)[0];
  Value y = nn::by_items(g, nn::modulated_norm(g, x, mod[0], mod[1], eps), batch);
  x = nn::gated(g, x, mod[2], nn::by_rows_of(g, attention(g, name + ".self_attn", y, y, rope, {}), x));
  y = nn::by_items(g, g.layer_norm(x, name + ".norm3", eps), batch);
  x = g.add(x, nn::by_rows_of(g, attention(g, name + ".cross_attn", y, asked.text, {}, asked.image), x));
  y = nn::mlp(g, nn::modulated_norm(g, x, mod[3], mod[4], eps), name + ".ffn.0", name + ".ffn.2");
  return nn::gated(g, x, mod[5], y);
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], time = sizes["time"], height = sizes["height"], width = sizes["width"];
  const int64_t length = sizes["text_length"];
  Value latents = g.input("latents", {batch, time, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value timestep = g.input("timestep", {batch}, LH_F32);

  const std::optional<nn::FirstFrame> first = nn::FirstFrame::of(g, sizes, latents);
  Value t =
      nn::timestep_embedder(g, first ? first->times(g, timestep, time) : timestep, 1000.0, "time_embedding", "0", "2");
  const int64_t times = g.shape(t)[0];
  Value e = g.reshape(g.linear(g.silu(t), "time_projection.1"), {times, 6, dims.hidden});
  Asked asked{nn::mlp(g, text, "text_embedding.0", "text_embedding.2"), {}};
  if (dims.image > 0) asked.image = image_states(g, g.input("image", {batch, sizes["image_length"], dims.image}));
  Value x = latents;
  if (dims.shown > 0) x = behind_noise(g, latents);
  if (first) x = first->shown(g, latents);
  x = patches(g, x, dims.hidden);
  if (first) x = g.reshape(x, {times, g.shape(x)[1] / time, dims.hidden});
  const nn::RopeTables rope =
      nn::video_positions(g, {time, height / Dimensions::patch, width / Dimensions::patch}, 0, {44, 42, 42}, 10000.0);
  for (int64_t i = 0; i < dims.blocks; ++i) x = block(g, "blocks." + std::to_string(i), x, e, asked, rope);

  const std::vector<Value> mod = modulation(g, g.reshape(t, {times, 1, dims.hidden}), "head.modulation", 2);
  Value out = g.linear(nn::modulated_norm(g, x, mod[0], mod[1], eps), "head.head");
  const lora_host::Dims d = g.shape(out);  // [B, t H W / 4, 4 C], or by frames of latents
  out = g.reshape(out, {batch * time, d[0] * d[1] / (batch * time), d[2]});
  out = nn::unpatchify_channel_last(g, out, height, width, Dimensions::patch);
  out = g.reshape(out, g.shape(latents));
  g.output("output", first ? first->velocity(g, out, latents, timestep) : out);
}

}  // namespace wan
