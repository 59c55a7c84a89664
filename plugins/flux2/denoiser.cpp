// The graph of the Flux.2 transformer.
//
//   vec = time_in(1000 t) [+ guidance_in(1000 guidance)]                                        [B, h]
//   modulations: linear in silu(vec), one set for the image in all double blocks, one for the text, one for all single
//   blocks
//   double blocks: text and image tokens with weights of their own, one attention over both
//   single blocks: one sequence, text in front; attention and mlp side by side, of one linear and into one
//   final layer:   modulated norm and a linear back to latents
//
// Mlps are gated: silu(first half) * second half. No linear has a bias. Every row of the text is seen. Pictures to look
// at (references) stand behind the image's tokens, go through the same weights and have no output.
#include "flux2.h"
#include "nn/flux_blocks.hpp"

namespace flux2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr int64_t head_dim = Dimensions::head_dim;

// Ids (time, row, column, place in the text): text (0, 0, 0, j), image (0, row, column, 0), the n-th reference, from 1,
// (10 n, row, column, 0).
nn::RopeTables places(Graph& g, int64_t text, int64_t rows, int64_t columns, int64_t references) {
  using Id = std::array<int64_t, 4>;
  std::vector<Id> ids;
  for (int64_t j = 0; j < text; ++j) ids.push_back({0, 0, 0, j});
  for (int64_t picture = 0; picture <= references; ++picture)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) ids.push_back({10 * picture, row, column, 0});
  return nn::rope_tables(g, ids, Id{32, 32, 32, 32}, 2000.0);
}

class Blocks {
 public:
  // rope: of the text, which has so many tokens, and all pictures.
  Blocks(Graph& g, const Dimensions& dims, const nn::RopeTables& rope, int64_t text)
      : g_(g), dims_(dims), rope_(rope), of_streams_(nn::joint_rope(g, rope, text)) {}

  void joint(int64_t block, Value& img, Value& txt, const std::vector<Value>& of_img,
             const std::vector<Value>& of_txt) {
    const std::string name = "double_blocks." + std::to_string(block);
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    nn::JointStream image = stream(name + ".img", img), text = stream(name + ".txt", txt);
    const nn::Qkv image_qkv = image.qkv(of_img, head_dim), text_qkv = text.qkv(of_txt, head_dim);
    const nn::JointAttention attention = nn::joint_attention(g_, text_qkv, image_qkv, of_streams_);
    image.attend(attention.second);
    text.attend(attention.first);
    img = fed_forward(image, name + ".img_mlp");
    txt = nn::held(g_, fed_forward(text, name + ".txt_mlp"));
  }

  Value single(int64_t block, Value x, const std::vector<Value>& mod) {
    const std::string name = "single_blocks." + std::to_string(block);
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    const int64_t h = dims_.hidden;
    Value wide = g_.linear(nn::modulated_norm(g_, x, mod[0], mod[1]), name + ".linear1");  // [B, S, 3h + 2 inner]
    const std::vector<Value> parts = g_.split(wide, -1, {h, h, h, dims_.inner, dims_.inner});
    const nn::Qkv qkv = nn::heads(g_, parts[0], parts[1], parts[2], head_dim, norm(name + ".norm.query_norm"),
                                  norm(name + ".norm.key_norm"));
    Value y = g_.concat({nn::self_attention(g_, qkv, rope_), g_.mul(g_.silu(parts[3]), parts[4])}, -1);
    return nn::held(g_, nn::gated(g_, x, mod[2], g_.linear(y, name + ".linear2")));
  }

 private:
  std::string norm(const std::string& name) const { return nn::flux_norm(g_.weights(), name); }

  nn::JointStream stream(const std::string& name, Value x) const {
    return nn::JointStream(g_,
                           {.qkv = name + "_attn.qkv",
                            .q_norm = norm(name + "_attn.norm.query_norm"),
                            .k_norm = norm(name + "_attn.norm.key_norm"),
                            .proj = name + "_attn.proj"},
                           x);
  }

  Value fed_forward(nn::JointStream& stream, const std::string& mlp) const {
    Value wide = g_.linear(nn::modulated_norm(g_, stream.x(), stream.mod(3), stream.mod(4)), mlp + ".0");
    const std::vector<Value> halves = g_.split(wide, -1, {dims_.inner, dims_.inner});
    stream.add(5, g_.linear(g_.mul(g_.silu(halves[0]), halves[1]), mlp + ".2"));
    return stream.x();
  }

  Graph& g_;
  const Dimensions& dims_;
  nn::RopeTables rope_;
  nn::JointRope of_streams_;
};

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value vec = nn::timestep_embedder(g, timestep, 1000.0, "time_in", "in_layer", "out_layer");
  if (dims.guidance) {
    Value guidance = g.input("guidance", {batch}, LH_F32);
    vec = g.add(vec, nn::timestep_embedder(g, guidance, 1000.0, "guidance_in", "in_layer", "out_layer"));
  }
  Value activated = g.silu(vec);
  const std::vector<Value> of_img = nn::modulation(g, activated, "double_stream_modulation_img.lin", 6),
                           of_txt = nn::modulation(g, activated, "double_stream_modulation_txt.lin", 6),
                           of_both = nn::modulation(g, activated, "single_stream_modulation.lin", 3);

  std::vector<Value> pictures{g.reshape(latents, {batch, height * width, dims.channels})};
  for (const char* reference : {"reference", "reference_2", "reference_3", "reference_4"})
    if (sizes.has(reference))
      pictures.push_back(
          g.reshape(g.input(reference, {batch, height, width, dims.channels}), {batch, height * width, dims.channels}));
  const int64_t references = static_cast<int64_t>(pictures.size()) - 1;
  Value img = g.linear(references == 0 ? pictures[0] : g.concat(pictures, 1), "img_in");
  Value txt = g.linear(text, "txt_in");
  Blocks blocks(g, dims, places(g, length, height, width, references), length);
  for (int64_t i = 0; i < dims.double_blocks; ++i) blocks.joint(i, img, txt, of_img, of_txt);
  Value x = g.concat({txt, img}, 1);
  for (int64_t i = 0; i < dims.single_blocks; ++i) x = blocks.single(i, x, of_both);
  const std::vector<Value> last = nn::modulation(g, activated, "final_layer.adaLN_modulation.1", 2);
  x = nn::modulated_norm(g, g.slice(x, 1, length, height * width), last[0], last[1]);
  g.output("output", g.reshape(g.linear(x, "final_layer.linear"), {batch, height, width, dims.channels}));
}

}  // namespace flux2
