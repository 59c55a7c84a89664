// The graph of the Flux.3 transformer.
//
//   image, reference, text: three kinds of tokens, each with an embedder and `mode` blocks of its own, in which it sees
//   itself only; then `single` blocks over all of them as one sequence; final layer over the image
//
// A block has attention and mlp side by side: x += gate (attn_out(attention(y)) + mlp_out(silu(a) b)), a and b the
// halves of mlp_in(y), y = (1 + scale) norm(x) + shift. These three vectors are linear in silu(time_in(1000 t)): one
// linear for each kind in all its mode blocks, one in all single blocks. t is the timestep for the image, 0 for the
// reference and the text. No linear has a bias.
//
// Positions (t, row, column, l): the image is at (0, row / 2, column / 2, 0), the reference at the same with l = -1,
// row j of the text at (0, 0, 0, j). In the sequence the text stands last, so that what is not there of it is the end
// of the keys.
#include "denoiser.h"

#include "nn/mmdit.hpp"

namespace flux3 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr int64_t head_dim = Dimensions::head_dim;

// Positions of tokens one after the other, and the rotary tables of them.
class Places {
 public:
  void add_picture(int64_t rows, int64_t columns, int64_t l) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) add({0.0, row / 2.0, column / 2.0, static_cast<double>(l)});
  }
  void add_text(int64_t length) {
    for (int64_t j = 0; j < length; ++j) add({0.0, 0.0, 0.0, static_cast<double>(j)});
  }
  nn::RopeTables tables(Graph& g) const { return angles_.tables(g, {count_, head_dim / 2}); }

 private:
  void add(const std::array<double, 4>& id) {
    for (const double position : id)
      for (const double frequency : frequencies_) angles_.add(position * frequency);
    ++count_;
  }

  const std::vector<double> frequencies_ = nn::rope_frequencies(head_dim / 4, 10000.0);
  nn::RopeAngles angles_;
  int64_t count_ = 0;
};

// One kind of token.
struct Stream {
  std::string blocks;                // its mode blocks: "txt_mode_blocks"
  Value x;                           // [B, S, h]
  std::vector<Value> early, single;  // shift, scale, gate [B, 1, h], in its mode blocks and in the single blocks
  nn::RopeTables rope;
  Value lengths;  // i32 [B]: how many of its tokens are there; absent: all
};

// Whose queries see whose keys.
struct Reach {
  nn::RopeTables queries, keys;
  Value key_lengths;
};

class Blocks {
 public:
  Blocks(Graph& g, const Dimensions& dims) : g_(g), dims_(dims) {}

  void mode(const std::string& name, Stream& stream) const {
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    Value y = nn::modulated_norm(g_, stream.x, stream.early[0], stream.early[1]);
    y = branches(name, y, y, {stream.rope, stream.rope, stream.lengths});
    stream.x = nn::gated(g_, stream.x, stream.early[2], y);
  }

  // Behind the last block only the image is looked at, so there it alone asks.
  void single(const std::string& name, std::vector<Stream>& streams, const nn::RopeTables& rope, Value key_lengths,
              bool last) const {
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    std::vector<Value> parts;
    std::vector<int64_t> tokens;
    for (const Stream& s : streams) {
      parts.push_back(nn::modulated_norm(g_, s.x, s.single[0], s.single[1]));
      tokens.push_back(g_.shape(s.x)[1]);
    }
    Value all = g_.concat(parts, 1);
    if (last) {
      parts = {branches(name, parts[0], all, {streams[0].rope, rope, key_lengths})};
      streams.resize(1);
    } else {
      parts = g_.split(branches(name, all, all, {rope, rope, key_lengths}), 1, tokens);
    }
    for (size_t i = 0; i < streams.size(); ++i)
      streams[i].x = nn::gated(g_, streams[i].x, streams[i].single[2], parts[i]);
  }

 private:
  // Attention and mlp of the tokens that ask, [B, S, h].
  Value branches(const std::string& name, Value asking, Value seen, const Reach& reach) const {
    Value q = g_.linear(asking, name + ".q_proj"), k = g_.linear(seen, name + ".k_proj");
    Value v = g_.linear(seen, name + ".v_proj");
    nn::Qkv qkv = nn::heads(g_, q, k, v, head_dim, name + ".norm.query_norm.scale", name + ".norm.key_norm.scale");
    qkv.q = g_.rope(qkv.q, reach.queries.cos, reach.queries.sin);
    qkv.k = g_.rope(qkv.k, reach.keys.cos, reach.keys.sin);
    Value y = g_.linear(nn::self_attention(g_, qkv, {}, reach.key_lengths), name + ".attn_out");
    const std::vector<Value> halves = g_.split(g_.linear(asking, name + ".mlp_in"), -1, {dims_.inner, dims_.inner});
    return g_.add(y, g_.linear(g_.mul(g_.silu(halves[0]), halves[1]), name + ".mlp_out"));
  }

  Graph& g_;
  const Dimensions& dims_;
};

// The kinds of tokens as their embedders give them, and the positions of all of them one after the other.
class Streams {
 public:
  Streams(Graph& g, int64_t rows, int64_t columns) : g_(g), rows_(rows), columns_(columns) {}

  // tokens [B, S, .]; activated [B, h], of the time of this kind.
  void add_picture(const std::string& mode, Value tokens, Value activated, int64_t l) {
    Places own;
    for (Places* p : {&own, &places_}) p->add_picture(rows_, columns_, l);
    add(mode, "content_mode_blocks." + mode, g_.linear(tokens, "emb_in." + mode), activated, own);
    before_text_ += rows_ * columns_;
  }
  void add_text(Value rows, Value activated, Value lengths) {
    Places own;
    for (Places* p : {&own, &places_}) p->add_text(g_.shape(rows)[1]);
    add("txt", "txt_mode_blocks", g_.linear(rows, "txt_in"), activated, own);
    all.back().lengths = lengths;
  }

  nn::RopeTables rope() const { return places_.tables(g_); }
  // Keys that are there of the whole sequence, i32 [B].
  Value key_lengths() const {
    Value text = g_.cast(all.back().lengths, LH_F32);
    return g_.cast(g_.affine(text, 1, static_cast<double>(before_text_)), LH_I32);
  }

  std::vector<Stream> all;  // the image, a reference, the text

 private:
  void add(const std::string& mode, const std::string& blocks, Value x, Value activated, const Places& own) {
    const auto vectors = [&](const std::string& group) {
      return nn::modulation(g_, activated, group + "_stream_modulations." + mode + ".lin", 3);
    };
    all.push_back({blocks, x, vectors("early"), vectors("single"), own.tables(g_), {}});
  }

  Graph& g_;
  int64_t rows_, columns_, before_text_ = 0;
  Places places_;
};

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes, bool reference) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  const auto picture = [&](const char* name) {
    return g.reshape(g.input(name, {batch, height, width, dims.channels}), {batch, height * width, dims.channels});
  };
  const auto activated = [&](Value t) {
    return g.silu(nn::timestep_embedder(g, t, 1000.0, "time_in", "in_layer", "out_layer"));
  };
  Value at_t = activated(g.input("timestep", {batch}, LH_F32));
  Value at_0 = activated(g.constant({batch}, std::vector<float>(static_cast<size_t>(batch))));
  Streams streams(g, height, width);
  streams.add_picture("image", picture("latents"), at_t, 0);
  if (reference) streams.add_picture("image_cond", picture("reference"), at_0, -1);
  streams.add_text(g.input("text", {batch, length, dims.text}), at_0, g.input("text_lengths", {batch}, LH_I32));

  const Blocks blocks(g, dims);
  for (Stream& stream : streams.all)
    for (int64_t i = 0; i < dims.mode_blocks; ++i) blocks.mode(stream.blocks + "." + std::to_string(i), stream);
  const nn::RopeTables rope = streams.rope();
  Value seen = streams.key_lengths();
  for (int64_t i = 0; i < dims.single_blocks; ++i)
    blocks.single("single_blocks." + std::to_string(i), streams.all, rope, seen, i + 1 == dims.single_blocks);

  const std::vector<Value> last = nn::modulation(g, at_t, "final_layer.image.adaLN_modulation.1", 2);
  Value out = g.linear(nn::modulated_norm(g, streams.all[0].x, last[0], last[1]), "final_layer.image.linear");
  g.output("output", g.reshape(out, {batch, height, width, dims.channels}));
}

}  // namespace flux3
