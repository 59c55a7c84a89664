// One stream of the transformer: the clip's, or that of its sound, whose modules are the same ones behind "audio_".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attention.h"

namespace ltx2 {

// Positions in time of latents of which the first is of one frame and each other of `frames_each`: the middle of each,
// as a share of 20 seconds. seconds: when a frame begins, in float32 as the vendor's programs round.
Shares times_of(int64_t latents, int64_t frames_each, const std::function<float(int64_t frame)>& seconds);

// A vector of a time, and rows of it.
struct TimeRows {
  lora_host::Value all, vector;  // [R, n, h], [R, h]
};
TimeRows time_rows(lora_host::Graph& g, lora_host::Value timestep, const std::string& module);

// Pieces [R, 1, h] of rows [R, n, h] or [R, 1, h] + the learned table [n, h].
std::vector<lora_host::Value> modulation(lora_host::Graph& g, lora_host::Value rows, const std::string& table);

// (1 + scale) x + shift
lora_host::Value modulated(lora_host::Graph& g, lora_host::Value x, lora_host::Value shift, lora_host::Value scale);

struct Stream {
  std::string prefix;  // of its modules: "" or "audio_"
  int64_t head;        // width of a head
  TimeRows time;
  lora_host::Value text, prompt;  // rows of text, [B, L, h], and what modulates them, [B, 2, h], from 2.3 on
  lora_host::nn::RopeTables rope = {};
  lora_host::Value x = {};  // tokens, [R, n, h], of as many rows as there are times

  // times f32 [R]: one of each sample, or one of each of its frames. sigma f32 [B], text [B, L, D].
  Stream(lora_host::Graph& g, const std::string& prefix, int64_t head, lora_host::Value times, lora_host::Value sigma,
         lora_host::Value text);
  lora_host::Value velocity(lora_host::Graph& g) const;  // [R, n, C]
};

// A block of a stream. Calls in this order: look, feed_forward, with what comes of the other stream between them.
class StreamBlock {
 public:
  StreamBlock(lora_host::Graph& g, const std::string& block, Stream& stream);
  void look();  // at its own tokens, and at the text
  void feed_forward();

 private:
  lora_host::Graph& g_;
  std::string modules_;  // what their names begin with: "transformer_blocks.0.audio_"
  Stream& stream_;
  std::vector<lora_host::Value> mod_;
};

}  // namespace ltx2
