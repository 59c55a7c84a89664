// Blocks of the adapter, with RMS norms and residuals:
//   x += self_attn(norm(x));  x += cross_attn(norm(x), states);  x += mlp(norm(x))
// Both sequences have rotary places of their own, 0, 1, ..., in both attentions.
#include "adapter.h"

#include "attention.h"

namespace anima {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Value;
using lora_host::Weights;

namespace {

const std::string root = "llm_adapter:";
constexpr double adapter_theta = 10000;

int64_t count(const Weights& w) { return w.count(root + "blocks.", ".mlp.0.weight"); }

int64_t head_dim(const Weights& w) { return w.require(root + "blocks.0.self_attn.q_norm.weight", {-1})[0]; }

}  // namespace

int64_t adapter_source(const Weights& w) { return w.require(root + "blocks.0.cross_attn.k_proj.weight", {-1, -1})[1]; }

int64_t check_adapter(const Weights& w) {
  const int64_t d = w.require(root + "embed.weight", {-1, -1})[1], head = head_dim(w), source = adapter_source(w);
  const int64_t inner = w.require(root + "blocks.0.self_attn.q_proj.weight", {-1, d})[0];
  if (head < 2 || head % 2 != 0 || inner % head != 0)
    throw Failure(LH_E_MODEL, root + "blocks.0.self_attn.q_proj.weight: expected a multiple of " +
                                  std::to_string(head) + " rows (the width of q_norm), found " + std::to_string(inner));
  for (int64_t i = 0; i < count(w); ++i) {
    const std::string block = root + "blocks." + std::to_string(i);
    for (const auto& [attention, seen] : {std::pair{".self_attn", d}, std::pair{".cross_attn", source}}) {
      w.require_linear(block + attention + ".q_proj", inner, d, false);
      w.require_linear(block + attention + ".k_proj", inner, seen, false);
      w.require_linear(block + attention + ".v_proj", inner, seen, false);
      w.require_linear(block + attention + ".o_proj", d, inner, false);
      for (const char* norm : {".q_norm.weight", ".k_norm.weight"}) w.require(block + attention + norm, {head});
    }
    for (const char* norm : {".norm_self_attn.weight", ".norm_cross_attn.weight", ".norm_mlp.weight"})
      w.require(block + norm, {d});
    const int64_t wide = w.require(block + ".mlp.0.weight", {-1, d})[0];
    w.require_linear(block + ".mlp.0", wide, d);
    w.require_linear(block + ".mlp.2", d, wide);
  }
  w.require_linear(root + "out_proj", d, d);
  w.require(root + "norm.weight", {d});
  return d;
}

Value adapter(Graph& g, Value ids, Value lengths, Value states, Value state_lengths) {
  const Weights weights = g.weights();
  const std::vector<double> frequencies = nn::rope_frequencies(head_dim(weights), adapter_theta);
  const Sequence seen = {states, nn::rope_tables(g, g.shape(states)[1], frequencies), state_lengths};
  Sequence x = {g.embedding(ids, root + "embed"), nn::rope_tables(g, g.shape(ids)[1], frequencies), lengths};
  const int64_t blocks = count(weights);
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = root + "blocks." + std::to_string(i);
    auto scope = g.scope(block, LH_SCOPE_CHECKPOINT);
    const auto normed = [&](const char* norm) {
      return Sequence{g.rms_norm(x.rows, block + norm, eps), x.rope, x.key_lengths};
    };
    const Sequence y = normed(".norm_self_attn");
    x.rows = g.add(x.rows, attention(g, block + ".self_attn", "o_proj", y, y));
    x.rows = g.add(x.rows, attention(g, block + ".cross_attn", "o_proj", normed(".norm_cross_attn"), seen));
    x.rows = g.add(x.rows, mlp(g, normed(".norm_mlp").rows, block + ".mlp.0", block + ".mlp.2"));
  }
  return g.rms_norm(g.linear(x.rows, root + "out_proj"), root + "norm", eps);
}

}  // namespace anima
