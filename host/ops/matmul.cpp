// matmul: c = op(a) op(b) per batch of equal leading axes. a or b may have 1s there, and is then the same for all of
// the batch; its gradient is the sum of what each would give, matmul_sum.
#include "ops/matmul_sum.h"
#include "ops/ops.h"

namespace lh {
namespace {

bool is_single(const Shape& shape) {
  for (int64_t i = 0; i + 2 < shape.rank(); ++i)
    if (shape[i] != 1) return false;
  return true;
}

std::vector<Desc> infer(const Infer& a) {
  const Desc &x = required(a, 0), &y = required(a, 1);
  const int64_t rank = x.shape.rank();
  expect(rank >= 2 && y.shape.rank() == rank, "a and b must have the same rank of at least 2");
  const bool repeats_a = is_single(x.shape) && !is_single(y.shape);
  for (int64_t i = 0; i + 2 < rank && !repeats_a && !is_single(y.shape); ++i)
    expect(x.shape[i] == y.shape[i], "leading axes of a and b differ");
  const bool ta = a.attrs.i("transpose_a") != 0, tb = a.attrs.i("transpose_b") != 0;
  const int64_t m = x.shape[ta ? rank - 1 : rank - 2], k = x.shape[ta ? rank - 2 : rank - 1];
  const int64_t kb = y.shape[tb ? rank - 1 : rank - 2], n = y.shape[tb ? rank - 2 : rank - 1];
  expect(k == kb, fmt::format("inner axes differ: {} and {}", k, kb));
  const Desc& batch = repeats_a ? y : x;
  return {{batch.dtype, batch.shape.with(-2, m).with(-1, n)}};
}

std::vector<Desc> infer_sum(const Infer& a) {
  const Shape batch = infer(a)[0].shape;
  const Desc& like = required(a, 2);
  const int64_t rank = like.shape.rank();
  expect(is_single(like.shape) && batch.rank() == rank && like.shape[rank - 2] == batch[rank - 2] &&
             like.shape[rank - 1] == batch[rank - 1],
         "the sum of " + batch.text() + " cannot be like " + like.text());
  return {like};
}

void gradient(Gradient& g) {
  const int64_t ta = g.attrs().i("transpose_a"), tb = g.attrs().i("transpose_b");
  const Value a = g.in(0), b = g.in(1), dc = g.dout();
  const auto product = [&](Value left, Value right, int64_t transpose_a, int64_t transpose_b, Value like) {
    Attrs attrs{{"transpose_a", transpose_a}, {"transpose_b", transpose_b}};
    if (is_single(g.shape(like)) && !is_single(g.shape(dc)))
      return g.emit(matmul_sum_op, {left, right, like}, std::move(attrs));
    return g.cast_like(g.emit(matmul_op, {left, right}, std::move(attrs)), like);
  };
  if (g.needs(0)) g.set(0, ta != 0 ? product(b, dc, tb, 1, a) : product(dc, b, 0, 1 - tb, a));
  if (g.needs(1)) g.set(1, tb != 0 ? product(dc, a, 1, ta, b) : product(a, dc, 1 - ta, 0, b));
}

lk_status launch(const Launch& l) {
  lk_matmul_params p{};
  p.a = l.in[0];
  p.b = l.in[1];
  p.c = l.out[0];
  p.transpose_a = static_cast<int32_t>(l.attrs.i("transpose_a"));
  p.transpose_b = static_cast<int32_t>(l.attrs.i("transpose_b"));
  return lk_matmul(l.context, &p);
}

}  // namespace

const OpDef matmul_op{.name = "matmul/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef matmul_sum_op{.name = "matmul_sum", .infer = infer_sum, .launch = launch};

}  // namespace lh
