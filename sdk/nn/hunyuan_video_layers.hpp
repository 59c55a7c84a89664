// Layers of the autoencoder of HunyuanVideo 1.5 (hunyuan_video_autoencoder.hpp), for one chunk of a video
// [N, T, H, W, C] after the other.
//
//   res block: x + conv(silu(norm(conv(silu(norm x)))));  middle: res block, attention, res block
//
// Convolutions look back over time; beyond the borders and before the first frame they see what is nearest. In
// attention a frame sees itself and all before it: of the middle a chunk is a single frame, from which nothing has to
// be hidden.
#pragma once

#include <cmath>
#include <string>

#include "nn/video_chunks.hpp"
#include "nn/wan_autoencoder.hpp"

namespace lora_host::nn {

class HunyuanVideoLayers {
 protected:
  HunyuanVideoLayers(Graph& g, std::string prefix)
      : g_(g), weights_(g.weights()), prefix_(std::move(prefix)), chunks_(g) {}

  Value resnet(Value x, const std::string& module) {
    Value h = conv(g_.silu(channel_norm(g_, x, module + ".norm1.gamma")), module + ".conv1");
    return g_.add(x, conv(g_.silu(channel_norm(g_, h, module + ".norm2.gamma")), module + ".conv2"));
  }
  Value middle(Value x, const std::string& module) {
    auto scope = g_.scope(module, LH_SCOPE_CHECKPOINT);
    return resnet(attention(resnet(x, module + ".block_1"), module + ".attn_1"), module + ".block_2");
  }
  Value head(Value x, const std::string& root) {
    return conv(g_.silu(channel_norm(g_, x, root + "norm_out.gamma")), root + "conv_out");
  }

  // One head over all places of this frame and of those before.
  Value attention(Value x, const std::string& module) {
    const Dims d = g_.shape(x);  // [N, 1, H, W, C]
    const auto tokens = [&](Value of) { return g_.reshape(of, {d[0], g_.shape(of)[1] * d[2] * d[3], 1, d[4]}); };
    const Value h = channel_norm(g_, x, module + ".norm.gamma");
    const Value q = tokens(pointwise(h, module + ".q"));
    const Value k = tokens(chunks_.behind_all(pointwise(h, module + ".k"), module + ".k"));
    const Value v = tokens(chunks_.behind_all(pointwise(h, module + ".v"), module + ".v"));
    const Value y = g_.attention(q, k, v, 1.0 / std::sqrt(static_cast<double>(d[4])));
    return g_.add(x, pointwise(g_.reshape(y, d), module + ".proj_out"));
  }

  Value conv(Value x, const std::string& module) {
    x = framed(framed(x, 3), 2);
    if (chunks_.first()) {
      const Value frame = g_.slice(x, 1, 0, 1);
      x = g_.concat({frame, frame, x}, 1);
    }
    return g_.conv3d(chunks_.behind_seen(x, module, 2), module + ".conv");
  }

  Graph& g_;
  Weights weights_;
  std::string prefix_;
  VideoChunks chunks_;

 private:
  Value pointwise(Value x, const std::string& module) {
    Value weight = g_.param(module + ".weight");  // [O, I, 1, 1, 1]
    return g_.linear(x, g_.reshape(weight, {g_.shape(weight)[0], g_.shape(weight)[1]}), g_.param(module + ".bias"));
  }
  // What stands at both ends of an axis once more.
  Value framed(Value x, int64_t axis) {
    const int64_t last = g_.shape(x)[static_cast<size_t>(axis)] - 1;
    return g_.concat({g_.slice(x, axis, 0, 1), x, g_.slice(x, axis, last, 1)}, axis);
  }
};

}  // namespace lora_host::nn
