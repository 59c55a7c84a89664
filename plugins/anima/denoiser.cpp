// The graph of Anima's transformer, of one frame.
//
//   s = sinusoid(sigma), base = t_embedder(s) [B, 3h], t = silu(rms_norm(s)) [B, h]
//   x = x_embedder(patches); then in each block, for self attention, attention to the text, and MLP one after the
//   other: shift, scale, gate = base + up(down(t)), down and up of this part;  x += gate part((1 + scale) norm(x) +
//   shift)
//
//   velocity = patches of linear((1 + scale) norm(x) + shift), of the first two thirds of base + up(down(t))
//
// Positions have three axes, frame, row and column, of which self attention alone knows; the frame is 0. The axes of
// an image have a longer base than the first training's, 10000 * 4^(D / (D - 2)). To the channels of the latents comes
// one that marks padding, of which there is none: it is zero. Patches are read channel first and written channel last.
#include "denoiser.h"

#include "attention.h"
#include "nn/mmdit.hpp"

namespace anima {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr int64_t side_axis = Dimensions::head_dim / 6 * 2, frame_axis = Dimensions::head_dim - 2 * side_axis;
constexpr double theta = 10000, extrapolation = 4;

nn::RopeTables positions(Graph& g, int64_t rows, int64_t columns) {
  constexpr double side = side_axis;
  const std::vector<double> frame = nn::rope_frequencies(frame_axis, theta);
  const std::vector<double> place = nn::rope_frequencies(side_axis, theta * std::pow(extrapolation, side / (side - 2)));
  nn::RopeAngles angles;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      angles.add(0, frame);
      angles.add(row, place);
      angles.add(column, place);
    }
  return angles.tables(g, {rows * columns, Dimensions::head_dim / 2});
}

// What every modulation is made of.
struct Time {
  Value activated, base;  // [B, h], [B, 3h]
};

Time time(Graph& g, Value sigma, int64_t hidden) {
  Value wave = g.timestep_embedding(sigma, hidden, theta, 1.0);
  return {g.silu(g.rms_norm(wave, "t_embedding_norm", eps)),
          nn::embedder(g, wave, "t_embedder.1", "linear_1", "linear_2")};
}

// The stream of image tokens. Its sums leave the range of float16, so there they are float32, while what is between
// norm and gate is not.
class Stream {
 public:
  Stream(Graph& g, const Time& time, Value x) : g_(g), time_(time), x_(x), half_(g.describe(x).dtype == LH_F16) {
    x_ = wide(x_);
  }

  // x += gate f((1 + scale) norm(x) + shift)
  template <typename F>
  void add(const std::string& modulation, const F& f) {
    const std::vector<Value> mod = pieces(modulation, 3);
    x_ = nn::gated(g_, x_, wide(mod[2]), wide(f(modulated(mod))));
  }
  // (1 + scale) norm(x) + shift
  Value modulated(const std::string& modulation) const { return modulated(pieces(modulation, 2)); }

 private:
  Value wide(Value x) const { return half_ ? g_.cast(x, LH_F32) : x; }
  Value modulated(const std::vector<Value>& mod) const {
    Value y = nn::modulated_norm(g_, x_, wide(mod[0]), wide(mod[1]), eps);
    return half_ ? g_.cast(y, LH_FLOAT) : y;
  }
  // Shift, scale and, of three, gate: [B, 1, h] each.
  std::vector<Value> pieces(const std::string& module, int64_t count) const {
    Value own = g_.linear(g_.linear(time_.activated, module + ".1"), module + ".2");
    const lora_host::Dims d = g_.shape(own);  // [B, count h]
    Value all = g_.add(own, count == 3 ? time_.base : g_.slice(time_.base, 1, 0, d[1]));
    return g_.split(g_.reshape(all, {d[0], 1, d[1]}), -1,
                    std::vector<int64_t>(static_cast<size_t>(count), d[1] / count));
  }

  Graph& g_;
  const Time& time_;
  Value x_;  // [B, S, h]
  bool half_;
};

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  const Sequence text = {g.input("text", {batch, length, dims.text}), {}};
  const Time at = time(g, g.input("timestep", {batch}, LH_F32), dims.hidden);

  Value marked = g.pad(latents, {0, 0, 0, 0}, {0, 0, 0, 1});
  Stream x(g, at, g.linear(nn::patchify_channel_first(g, marked, Dimensions::patch), "x_embedder.proj.1"));
  const nn::RopeTables places = positions(g, height / Dimensions::patch, width / Dimensions::patch);
  for (int64_t i = 0; i < dims.blocks; ++i) {
    const std::string block = "blocks." + std::to_string(i), modulation = block + ".adaln_modulation_";
    auto scope = g.scope(block, LH_SCOPE_CHECKPOINT);
    x.add(modulation + "self_attn", [&](Value y) {
      const Sequence image = {y, places};
      return attention(g, block + ".self_attn", "output_proj", image, image);
    });
    x.add(modulation + "cross_attn", [&](Value y) {
      return attention(g, block + ".cross_attn", "output_proj", {y, {}}, text);
    });
    x.add(modulation + "mlp", [&](Value y) { return mlp(g, y, block + ".mlp.layer1", block + ".mlp.layer2"); });
  }
  Value out = g.linear(x.modulated("final_layer.adaln_modulation"), "final_layer.linear");
  g.output("output", nn::unpatchify_channel_last(g, out, height, width, Dimensions::patch));
}

}  // namespace anima
