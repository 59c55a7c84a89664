// lk_lora_gradients: every layer by itself, and no output of one where another reads or writes.
#include <string>
#include <vector>

#include "dispatch.h"
#include "layers.h"

namespace {

using Layer = lk_lora_gradients_layer;

void check_layer(const lk::Check& check, const Layer& p) {
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 1, LK_MAX_RANK);
  check.floating(LK_ARG(p, dy));
  check.rank(LK_ARG(p, dy), p.x.rank, p.x.rank);
  const int64_t in = p.x.dims[p.x.rank - 1], out = p.dy.dims[p.dy.rank - 1];
  check.shape(LK_ARG(p, dy), lk::with_last(p.x, out));
  check.floating(LK_ARG(p, s));
  check.rank(LK_ARG(p, s), p.x.rank, p.x.rank);
  const int64_t r = p.s.dims[p.s.rank - 1];
  check.shape(LK_ARG(p, s), lk::with_last(p.x, r));
  check.dtype(LK_ARG(p, ds), p.dy.dtype);
  check.shape(LK_ARG(p, ds), lk::shape_of(p.s));
  check.finite("scale", p.scale);
  check.floating(LK_ARG(p, ddown));
  check.shape(LK_ARG(p, ddown), {r, in});
  check.floating(LK_ARG(p, dup));
  check.shape(LK_ARG(p, dup), {out, r});
  for (const lk::Arg& output : {LK_ARG(p, ddown), LK_ARG(p, dup)})
    check.separate(output, {LK_ARG(p, x), LK_ARG(p, dy), LK_ARG(p, s), LK_ARG(p, ds)});
  check.separate(LK_ARG(p, ddown), {LK_ARG(p, dup)});
}

std::vector<lk::Arg> read_by(const Layer& p) { return {LK_ARG(p, x), LK_ARG(p, dy), LK_ARG(p, s), LK_ARG(p, ds)}; }
std::vector<lk::Arg> written_by(const Layer& p) { return {LK_ARG(p, ddown), LK_ARG(p, dup)}; }

void check_lora_gradients(const lk_lora_gradients_params& p) {
  constexpr const char* op = "lora_gradients";
  lk::check_layers(lk::Check(op), p.layers, p.count, LK_LORA_GRADIENTS_MAX);
  for (int32_t i = 0; i < p.count; ++i) {
    const std::string name = lk::layer_name(op, i);
    check_layer(lk::Check(name.c_str()), p.layers[i]);
  }
  lk::check_layers_apart(op, p.layers, p.count, read_by, written_by);
}

}  // namespace

LK_DEFINE_OP(lora_gradients, lk_lora_gradients_params)
