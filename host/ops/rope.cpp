// rope: rotary position embedding of x [B, S, H, D] by tables cos, sin [S, D/2] or [B, S, D/2], of pairs in halves also
// as wide as D. Its gradient is the inverse rotation.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc &x = required(a, 0), &cos = required(a, 1), &sin = required(a, 2);
  expect(x.shape.rank() == 4 && x.shape[3] % 2 == 0, "x must be [B, S, H, D] with even D, is " + x.text());
  const auto fits = [&](int64_t width) {
    return cos.shape == Shape{x.shape[1], width} || cos.shape == Shape{x.shape[0], x.shape[1], width};
  };
  const bool wide = a.attrs.i("interleaved") == 0 && fits(x.shape[3]);
  expect(cos == sin && cos.dtype == DType::f32 && (wide || fits(x.shape[3] / 2)),
         "cos and sin must be float32 [S, D/2] or [B, S, D/2], of halves also D wide, are " + cos.text() + " and " +
             sin.text());
  return {x};
}

void gradient(Gradient& g) {
  const int64_t inverse = g.attrs().has("inverse") ? g.attrs().i("inverse") : 0;
  const Attrs attrs{{"interleaved", g.attrs().i("interleaved")}, {"inverse", 1 - inverse}};
  g.set(0, g.emit(rope_op, {g.dout(), g.in(1), g.in(2)}, attrs));
}

lk_status launch(const Launch& l) {
  lk_rope_params p{};
  p.x = l.in[0];
  p.cos = l.in[1];
  p.sin = l.in[2];
  p.y = l.out[0];
  p.interleaved = static_cast<int32_t>(l.attrs.i("interleaved"));
  p.inverse = l.attrs.has("inverse") ? static_cast<int32_t>(l.attrs.i("inverse")) : 0;
  return lk_rope(l.context, &p);
}

}  // namespace

const OpDef rope_op{.name = "rope/1", .infer = infer, .gradient = gradient, .launch = launch};

}  // namespace lh
