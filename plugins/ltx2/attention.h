// Attention of LTX-2, in the transformer and in the connectors of its text:
//
//   q, k = norm(to_q x), norm(to_k seen);  y = to_out.0(2 sigmoid(to_gate_logits x) softmax(q k^T / sqrt(D)) v)
//
// Norms of q and k are RMS and go over all heads. Gates, one for each head, are those of LTX-2.3 and LTX-2.5. Rotary
// positions turn halves of a head, and each head turns by frequencies of its own: tables are those of tokens whose
// heads stand one after the other.
#pragma once

#include <string>
#include <vector>

#include "nn/rope.hpp"

namespace ltx2 {

constexpr int64_t head_dim = 128, sound_head_dim = 64;  // of the clip's stream; of its sound's, and between the two
constexpr double eps = 1e-6;

// Positions of one axis, as shares of the range that the model knows.
using Shares = std::vector<float>;

// [S heads, D/2] of S tokens, the last axis of positions the fastest, and `each` tokens of each position: cos and sin
// of freq (2 share - 1), freq from pi/2 to 10000 pi/2 in equal steps of its logarithm. The angles of a token are those
// of all axes by the first frequency, by the next one, and so on, behind angles of 0 that make up what is missing to
// h/2.
lora_host::nn::RopeTables rope_tables(lora_host::Graph& g, const std::vector<Shares>& axes, int64_t hidden,
                                      int64_t head, int64_t each = 1);

// x [B, S, h] asks seen [B, T, e], which are the same in self attention; each has its tables, or none.
lora_host::Value attention(lora_host::Graph& g, const std::string& module, int64_t head, lora_host::Value x,
                           lora_host::Value seen, const lora_host::nn::RopeTables& rope = {},
                           const lora_host::nn::RopeTables& seen_rope = {});

// Widths of what asks and of what is seen, of all heads together and of one.
struct AttentionSize {
  int64_t hidden, seen, inner, head;
};

// Throws where a tensor is missing or of another shape.
void require_attention(const lora_host::Weights& weights, const std::string& module, const AttentionSize& size);

// Linears net.0.proj and net.2 with gelu between them.
lora_host::Value feed_forward(lora_host::Graph& g, const std::string& module, lora_host::Value x);
void require_feed_forward(const lora_host::Weights& weights, const std::string& module, int64_t hidden,
                          bool bias = true);

}  // namespace ltx2
