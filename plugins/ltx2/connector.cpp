//   x    = registers, one after the other and again, where there are no tokens; and then in each block
//   x   += attn1(norm(x));  x += ff(norm(x));  text = norm(x)
//
// Norms are RMS, without weights; all rows see each other, at positions that are shares of 4096.
#include "connector.h"

#include <algorithm>

#include "attention.h"

namespace ltx2 {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Value;
using lora_host::Weights;

namespace {

constexpr float connector_positions = 4096;

// x [B, L, D] with rows of its own where mask has none.
Value with_registers(Graph& g, const std::string& connector, Value x, Value mask) {
  Value registers = g.param(connector + "learnable_registers");
  const Dims d = g.shape(x), r = g.shape(registers);
  if (d[1] % r[0] != 0)
    throw Failure(LH_E_SETTING, "model.max_sequence_length: expected a multiple of " + std::to_string(r[0]) +
                                    " (rows of learnable_registers), found " + std::to_string(d[1]));
  Value again = g.reshape(g.expand(g.reshape(registers, {1, r[0], r[1]}), {d[1] / r[0], r[0], r[1]}), {1, d[1], r[1]});
  return g.where(g.cast(mask, LH_I32), x, again);
}

std::string block_of(const std::string& connector, int64_t i) {
  return connector + "transformer_1d_blocks." + std::to_string(i);
}

int64_t blocks_of(const Weights& w, const std::string& connector) {
  return w.count(connector + "transformer_1d_blocks.", ".attn1.to_q.weight");
}

}  // namespace

Value connected(Graph& g, const std::string& connector, int64_t head, Value x, Value mask) {
  x = with_registers(g, connector, x, mask);
  const Dims d = g.shape(x);
  Shares shares;
  for (int64_t i = 0; i < d[1]; ++i) shares.push_back(static_cast<float>(i) / connector_positions);
  const nn::RopeTables rope = rope_tables(g, {shares}, d[2], head);
  for (int64_t i = 0; i < blocks_of(g.weights(), connector); ++i) {
    const std::string block = block_of(connector, i);
    auto scope = g.scope(block, LH_SCOPE_CHECKPOINT);
    Value y = g.rms_norm(x, eps);
    x = g.add(x, attention(g, block + ".attn1", head, y, y, rope, rope));
    x = g.add(x, feed_forward(g, block + ".ff", g.rms_norm(x, eps)));
  }
  return g.rms_norm(x, eps);
}

int64_t check_connector(const Weights& w, const std::string& connector, int64_t head, int64_t width) {
  const std::string registers = connector + "learnable_registers", wide = std::to_string(head);
  const int64_t h = w.require(registers, {-1, width > 0 ? width : -1})[1];
  if (h < 1 || h % head != 0)
    throw Failure(LH_E_MODEL, registers + ": expected a multiple of " + wide + " columns (heads of " + wide +
                                  "), found " + std::to_string(h));
  for (int64_t i = 0; i < std::max<int64_t>(blocks_of(w, connector), 1); ++i) {
    require_attention(w, block_of(connector, i) + ".attn1", {h, h, h, head});
    require_feed_forward(w, block_of(connector, i) + ".ff", h);
  }
  return h;
}

}  // namespace ltx2
