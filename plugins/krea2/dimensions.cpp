// Dimensions of a Krea 2 transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace krea2 {

using lora_host::Failure;
using lora_host::Weights;

namespace {

// Gives the numbers of a head.
int64_t require_block(const Weights& w, const std::string& block, int64_t h) {
  const std::string attention = block + ".attn", mlp = block + ".mlp";
  const int64_t head = w.require(attention + ".qknorm.qnorm.scale", {-1})[0];
  w.require(attention + ".qknorm.knorm.scale", {head});
  const int64_t queries = w.require(attention + ".wq.weight", {-1, h})[0],
                keys = w.require(attention + ".wk.weight", {-1, h})[0];
  if (head < 1 || keys % head != 0 || keys == 0 || queries % keys != 0)
    throw Failure(LH_E_MODEL, attention + ": " + std::to_string(queries) + " rows of wq and " + std::to_string(keys) +
                                  " of wk are not groups of heads of " + std::to_string(head) + " (qknorm.qnorm)");
  w.require_linear(attention + ".wv", keys, h, false);
  w.require_linear(attention + ".gate", queries, h, false);
  w.require_linear(attention + ".wo", h, queries, false);
  const int64_t inner = w.require(mlp + ".gate.weight", {-1, h})[0];
  w.require_linear(mlp + ".up", inner, h, false);
  w.require_linear(mlp + ".down", h, inner, false);
  for (const char* norm : {".prenorm.scale", ".postnorm.scale"}) w.require(block + norm, {h});
  return head;
}

struct Blocks {
  int64_t count = 0, head = 0;
};
Blocks require_blocks(const Weights& w, const std::string& name, int64_t h) {
  Blocks blocks{.count = w.count(name + ".", ".attn.wq.weight")};
  for (int64_t i = 0; i < std::max<int64_t>(blocks.count, 1); ++i) {
    const int64_t head = require_block(w, name + "." + std::to_string(i), h);
    if (i > 0 && head != blocks.head)
      throw Failure(LH_E_MODEL, name + "." + std::to_string(i) + ".attn.qknorm.qnorm.scale: expected shape [" +
                                    std::to_string(blocks.head) + "], found [" + std::to_string(head) + "]");
    blocks.head = head;
  }
  return blocks;
}

// A table of `pieces` vectors: side by side in the original's files or, as in those of diffusers, in rows.
void require_table(const Weights& w, const std::string& name, int64_t pieces, int64_t h) {
  if (w.require(name).size() == 1)
    w.require(name, {pieces * h});
  else
    w.require(name, {pieces, h});
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const int64_t h = dims.hidden = w.require("first.weight", {-1, -1})[0],
                places = Dimensions::patch * Dimensions::patch;
  const int64_t out = w.require("last.linear.weight", {-1, h})[0];
  w.require_linear("first", h, out);
  w.require_linear("last.linear", out, h);
  if (out % places != 0)
    throw Failure(LH_E_MODEL,
                  "last.linear.weight: expected a multiple of 4 rows (patches of 2x2), found " + std::to_string(out));
  dims.channels = out / places;
  require_table(w, "last.modulation.lin", 2, h);
  w.require("last.norm.scale", {h});

  w.require_linear("tmlp.0", h, w.require("tmlp.0.weight", {h, -1})[1]);
  w.require_linear("tmlp.2", h, h);
  w.require_linear("tproj.1", 6 * h, h);
  dims.text = w.require("txtmlp.0.scale", {-1})[0];
  w.require_linear("txtmlp.1", h, dims.text);
  w.require_linear("txtmlp.3", h, h);

  dims.states = w.require("txtfusion.projector.weight", {1, -1})[1];
  const Blocks layerwise = require_blocks(w, "txtfusion.layerwise_blocks", dims.text),
               refiners = require_blocks(w, "txtfusion.refiner_blocks", dims.text);
  if (layerwise.head != refiners.head)
    throw Failure(LH_E_MODEL, "txtfusion.refiner_blocks.0.attn.qknorm.qnorm.scale: expected shape [" +
                                  std::to_string(layerwise.head) + "] as in txtfusion.layerwise_blocks, found [" +
                                  std::to_string(refiners.head) + "]");
  dims.text_head = layerwise.head;
  dims.layerwise = layerwise.count;
  dims.refiners = refiners.count;

  const Blocks blocks = require_blocks(w, "blocks", h);
  for (int64_t i = 0; i < blocks.count; ++i) require_table(w, "blocks." + std::to_string(i) + ".mod.lin", 6, h);
  if (blocks.head % 16 != 0)
    throw Failure(LH_E_MODEL, "blocks.0.attn.qknorm.qnorm.scale: expected a multiple of 16 (rotary axes), found " +
                                  std::to_string(blocks.head));
  dims.head = blocks.head;
  dims.blocks = blocks.count;
  return dims;
}

}  // namespace krea2
