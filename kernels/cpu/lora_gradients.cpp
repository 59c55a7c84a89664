// ddown = ds^T x and dup = scale dy^T s, layer by layer. With M rows: x [M, in], dy [M, out], s and ds [M, r].
#include "cpu/convert.h"
#include "cpu/gemm.h"
#include "cpu/lora.h"

namespace lk::cpu {

void adapter_gradients(Cpu& cpu, const AdapterGradients& g) {
  const float beta = g.accumulate ? 1.0f : 0.0f;
  if (present(g.dup)) {
    const FloatOut dup(cpu, g.dup, g.accumulate);
    gemm(cpu, g.out, g.rank, g.rows, g.scale, {g.dy, g.out, true}, {g.s, g.rank}, beta, dup, g.rank);
  }
  if (present(g.ddown)) {
    const FloatOut ddown(cpu, g.ddown, g.accumulate);
    gemm(cpu, g.rank, g.in, g.rows, 1.0f, {g.ds, g.rank, true}, {g.x, g.in}, beta, ddown, g.in);
  }
}

void lora_gradients(Cpu& cpu, const lk_lora_gradients_params& p) {
  for (int32_t i = 0; i < p.count; ++i) {
    const lk_lora_gradients_layer& layer = p.layers[i];
    const FloatIn x(cpu, layer.x), dy(cpu, layer.dy), s(cpu, layer.s), ds(cpu, layer.ds);
    const int64_t in = last_dim(layer.x);
    adapter_gradients(cpu, {.rows = numel(layer.x) / in,
                            .in = in,
                            .out = last_dim(layer.dy),
                            .rank = last_dim(layer.s),
                            .x = x,
                            .dy = dy,
                            .s = s,
                            .ds = ds,
                            .scale = layer.scale,
                            .accumulate = layer.accumulate != 0,
                            .ddown = layer.ddown,
                            .dup = layer.dup});
  }
}

}  // namespace lk::cpu
