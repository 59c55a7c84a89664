// The graph of the Qwen-Image transformer: two streams, image and text, with weights of their own and one attention.
//
//   t   = silu(timestep_embedder(1000 sigma))                               [B, h]
//   img = img_in(patches), txt = txt_in(rms_norm(text)); then in each block, for both:
//   x  += gate attention((1 + scale) norm(x) + shift);  x += gate mlp((1 + scale) norm(x) + shift)
//   velocity = patches of proj_out((1 + scale) norm(img) + shift)
//
// Positions have three axes. The image lies around (0, 0, 0): patch (row, column) of h x w stands at
// (0, row - ceil(h / 2), column - ceil(w / 2)). Token j of the text stands at (s + j, s + j, s + j), where the longer
// side of the image ends: s = max(floor(h / 2), floor(w / 2)). In the sequence the text is behind the image, so that
// what is not there is the end of the keys.
#include "denoiser.h"

#include "nn/mmdit.hpp"

namespace qwen_image {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-6;

nn::RopeTables positions(Graph& g, int64_t rows, int64_t columns, int64_t text) {
  using Id = std::array<int64_t, 3>;
  std::vector<Id> ids;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      ids.push_back({0, row - (rows + 1) / 2, column - (columns + 1) / 2});
  for (int64_t at = std::max(rows, columns) / 2, end = at + text; at < end; ++at) ids.push_back({at, at, at});
  return nn::rope_tables(g, ids, Id{16, 56, 56}, 10000.0);
}

// Half precision does not reach as far as the text's states of a full model: they are held at its largest number.
Value held(Graph& g, Value x) { return g.describe(x).dtype == LH_F16 ? g.clamp(x, -65504, 65504) : x; }

struct Streams {
  Value image, text;  // [B, S, h], [B, L, h]
};

class Block {
 public:
  // rope: of image and text; seen i32 [B]: keys.
  Block(Graph& g, const nn::JointRope& rope, Value t, Value seen) : g_(g), rope_(rope), t_(t), seen_(seen) {}

  // The text behind the last block is not used, so there it has keys and values alone.
  Streams operator()(const std::string& name, const Streams& x, bool last) const {
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    const std::string attn = name + ".attn.";
    nn::JointStream image(g_, names(name + ".img", attn, "norm_"), x.image), text(g_, text_names(name, last), x.text);
    const nn::Qkv image_qkv = image.qkv(t_, 6, Dimensions::head_dim), text_qkv = text.qkv(t_, 6, Dimensions::head_dim);
    const nn::JointAttention attention = nn::joint_attention(g_, image_qkv, text_qkv, rope_, seen_);
    image.attend(attention.first);
    image.feed_forward();
    if (last) return {image.x(), {}};
    text.attend(attention.second);
    text.feed_forward();
    return {held(g_, image.x()), held(g_, text.x())};
  }

 private:
  static nn::JointStream::Names names(const std::string& stream, const std::string& attn, const std::string& norm) {
    return {.modulation = stream + "_mod.1",
            .qkv = {},
            .q_norm = attn + norm + "q.weight",
            .k_norm = attn + norm + "k.weight",
            .proj = attn + "to_out.0",
            .fc1 = stream + "_mlp.net.0.proj",
            .fc2 = stream + "_mlp.net.2",
            .q = attn + "to_q",
            .k = attn + "to_k",
            .v = attn + "to_v"};
  }
  static nn::JointStream::Names text_names(const std::string& block, bool last) {
    const std::string attn = block + ".attn.";
    nn::JointStream::Names text = names(block + ".txt", attn, "norm_added_");
    text.q = last ? "" : attn + "add_q_proj";
    text.k = attn + "add_k_proj";
    text.v = attn + "add_v_proj";
    text.proj = attn + "to_add_out";
    return text;
  }

  Graph& g_;
  const nn::JointRope& rope_;
  Value t_, seen_;
};

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value mask = g.input("text_mask", {batch, length}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  const std::string embedder = "time_text_embed.timestep_embedder";
  Value t = g.silu(nn::timestep_embedder(g, timestep, 1000.0, embedder, "linear_1", "linear_2"));
  Streams x = {g.linear(nn::patchify_channel_first(g, latents, Dimensions::patch), "img_in"),
               g.linear(g.rms_norm(text, "txt_norm", eps), "txt_in")};
  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch;
  const nn::JointRope rope = nn::joint_rope(g, positions(g, rows, columns, length), rows * columns);
  Value seen = g.cast(g.affine(nn::mask_lengths(g, mask), 1, static_cast<double>(rows * columns)), LH_I32);
  const Block block(g, rope, t, seen);
  for (int64_t i = 0; i < dims.blocks; ++i)
    x = block("transformer_blocks." + std::to_string(i), x, i + 1 == dims.blocks);

  const std::vector<Value> mod = nn::modulation(g, t, "norm_out.linear", 2);  // scale, shift
  Value out = g.linear(nn::modulated_norm(g, x.image, mod[1], mod[0], eps), "proj_out");
  g.output("output", nn::unpatchify_channel_first(g, out, height, width, Dimensions::patch));
}

}  // namespace qwen_image
