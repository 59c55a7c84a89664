// A video through a network that looks back over time, in chunks: its first frame, and then what makes one latent each.
// Layers are shown the last frames of what they saw before, so that the result is that of the whole, which would not
// fit.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lora_host/graph.hpp"

namespace lora_host::nn {

class VideoChunks {
 public:
  explicit VideoChunks(Graph& g) : g_(g) {}

  // x [N, T, H, W, C], `step` frames for each latent but the first. f: chunk -> its part of the result.
  template <class F>
  Value each(Value x, int64_t step, F f) {
    const int64_t frames = g_.shape(x)[1];
    if ((frames - 1) % step != 0)
      throw Failure(LH_E_SETTING, "a video of " + std::to_string(frames) + " frames does not divide into one and " +
                                      std::to_string(step) + " for each further latent");
    seen_.clear();
    std::vector<Value> made;
    for (int64_t at = 0, length = 1; at < frames; at += length, length = step) {
      first_ = at == 0;
      last_ = at + length == frames;
      made.push_back(f(frames == 1 ? x : g_.slice(x, 1, at, length)));
    }
    return frames == 1 ? made[0] : g_.concat(made, 1);
  }

  bool first() const { return first_; }

  // A chunk behind the frames, `count` at most, that `reader` was shown last, and those of this chunk for the next.
  Value behind_seen(Value x, const std::string& reader, int64_t count) {
    Value& seen = seen_[reader];
    const Value all = seen ? g_.concat({seen, x}, 1) : x;
    if (last_) return all;
    // A copy, since slices that stay in place hold what they are cut from, one chunk's after the other's.
    const int64_t frames = g_.shape(all)[1], kept = std::min(count, frames);
    seen = g_.affine(g_.slice(all, 1, frames - kept, kept), 1.0);
    return all;
  }

  // ... behind all frames that `reader` was shown.
  Value behind_all(Value x, const std::string& reader) {
    Value& seen = seen_[reader];
    return seen = seen ? g_.concat({seen, x}, 1) : x;
  }

 private:
  Graph& g_;
  std::map<std::string, Value> seen_;
  bool first_ = true, last_ = true;
};

}  // namespace lora_host::nn
