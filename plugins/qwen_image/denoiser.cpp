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
//
// References to look at, of the image's size, are patches behind its own, the n-th, from 1, with n on the first axis.
// They go through the image's layers and have no output. Edit-2511 modulates them as at timestep 0.
#include "denoiser.h"

#include "nn/mmdit.hpp"

namespace qwen_image {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-6;

// images: with the references.
nn::RopeTables positions(Graph& g, int64_t images, int64_t rows, int64_t columns, int64_t text) {
  using Id = std::array<int64_t, 3>;
  std::vector<Id> ids;
  for (int64_t image = 0; image < images; ++image)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        ids.push_back({image, row - (rows + 1) / 2, column - (columns + 1) / 2});
  for (int64_t at = std::max(rows, columns) / 2, end = at + text; at < end; ++at) ids.push_back({at, at, at});
  return nn::rope_tables(g, ids, Id{16, 56, 56}, 10000.0);
}

struct Streams {
  std::vector<Value> image;  // [B, S, h]: of parts that are modulated alike
  Value text;                // [B, L, h]
};

// silu of the embedded timestep: the sample's own, and for each part of the image's stream, one after the other.
struct Times {
  Value own, of_image;  // [B, h], [parts B, h]
};

class Block {
 public:
  // rope: of image and text; seen i32 [B]: keys; places: tokens of the noisy image.
  Block(Graph& g, const nn::JointRope& rope, const Times& t, Value seen, int64_t places)
      : g_(g), rope_(rope), t_(t), seen_(seen), places_(places) {}

  // The text behind the last block is not used, so there it has keys and values alone; the references end there, too.
  Streams operator()(const std::string& name, const Streams& x, bool last) const {
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    const std::string attn = name + ".attn.";
    nn::JointStream image(g_, names(name + ".img", attn, "norm_"), x.image), text(g_, text_names(name, last), x.text);
    const nn::Qkv image_qkv = image.qkv_of_parts(image_modulation(name, x.image.size()), Dimensions::head_dim);
    const nn::Qkv text_qkv = text.qkv(t_.own, 6, Dimensions::head_dim);
    nn::JointAttention attention = nn::joint_attention(g_, image_qkv, text_qkv, rope_, seen_);
    if (last && g_.shape(attention.first)[1] > places_) {
      image.keep(places_);
      attention.first = g_.slice(attention.first, 1, 0, places_);
    }
    image.attend(attention.first);
    image.feed_forward();
    if (last) return {image.parts(), {}};
    text.attend(attention.second);
    text.feed_forward();
    Streams out{{}, nn::held(g_, text.x())};
    for (Value part : image.parts()) out.image.push_back(nn::held(g_, part));
    return out;
  }

 private:
  // One linear for all parts.
  std::vector<std::vector<Value>> image_modulation(const std::string& name, size_t parts) const {
    const std::string module = name + ".img_mod.1";
    if (parts == 1) return {nn::modulation(g_, t_.of_image, module, 6)};
    std::vector<std::vector<Value>> all;
    const std::vector<int64_t> batches(parts, g_.shape(t_.own)[0]);
    for (Value of_part : g_.split(g_.linear(t_.of_image, module), 0, batches))
      all.push_back(nn::modulation_pieces(g_, of_part, 6));
    return all;
  }

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
  Times t_;
  Value seen_;
  int64_t places_;
};

// timestep f32 [B]; at_zero: the stream of the image has a part at timestep 0.
Times times(Graph& g, Value timestep, bool at_zero) {
  const int64_t batch = g.shape(timestep)[0];
  Value all = timestep;
  if (at_zero) all = g.concat({timestep, g.constant({batch}, std::vector<float>(static_cast<size_t>(batch), 0))}, 0);
  all = g.silu(nn::timestep_embedder(g, all, 1000.0, "time_text_embed.timestep_embedder", "linear_1", "linear_2"));
  return {at_zero ? g.slice(all, 0, 0, batch) : all, all};
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const Editing& editing, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value mask = g.input("text_mask", {batch, length}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  const Dims image{batch, height, width, dims.channels};
  std::vector<Value> references;  // patches; the first is there wherever the model edits
  for (const char* name : {"reference", "reference_2", "reference_3"})
    if (editing.references && (references.empty() || sizes.has(name)))
      references.push_back(nn::patchify_channel_first(g, g.input(name, image), Dimensions::patch));
  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch, places = rows * columns;
  const int64_t images = 1 + static_cast<int64_t>(references.size());

  const Times t = times(g, timestep, editing.at_zero && images > 1);
  std::vector<Value> patches{nn::patchify_channel_first(g, latents, Dimensions::patch)};
  patches.insert(patches.end(), references.begin(), references.end());
  Value img = g.linear(images == 1 ? patches[0] : g.concat(patches, 1), "img_in");
  Streams x{{img}, g.linear(g.rms_norm(text, "txt_norm", eps), "txt_in")};
  if (editing.at_zero && images > 1) x.image = g.split(img, 1, {places, (images - 1) * places});
  const nn::JointRope rope = nn::joint_rope(g, positions(g, images, rows, columns, length), images * places);
  Value seen = g.cast(g.affine(nn::mask_lengths(g, mask), 1, static_cast<double>(images * places)), LH_I32);
  const Block block(g, rope, t, seen, places);
  for (int64_t i = 0; i < dims.blocks; ++i)
    x = block("transformer_blocks." + std::to_string(i), x, i + 1 == dims.blocks);

  const std::vector<Value> mod = nn::modulation(g, t.own, "norm_out.linear", 2);  // scale, shift
  Value out = g.linear(nn::modulated_norm(g, x.image[0], mod[1], mod[0], eps), "proj_out");
  g.output("output", nn::unpatchify_channel_first(g, out, height, width, Dimensions::patch));
}

}  // namespace qwen_image
