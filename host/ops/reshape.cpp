// reshape and detach: the same storage under another shape, or cut off from gradients. No kernel runs.
#include "core/error.h"
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  std::vector<int64_t> dims = a.attrs.list("shape");
  int64_t known = 1, unknown = -1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == -1) {
      expect(unknown < 0, "only one axis may be -1");
      unknown = static_cast<int64_t>(i);
    } else {
      expect(dims[i] >= 0, "negative axis in shape");
      known = checked_mul(known, dims[i]);
    }
  }
  if (unknown >= 0) {
    expect(known > 0 && x.shape.numel() % known == 0, "the -1 axis cannot be inferred for " + x.text());
    dims[static_cast<size_t>(unknown)] = x.shape.numel() / known;
  }
  Shape shape(std::move(dims));
  expect(shape.numel() == x.shape.numel(), "cannot reshape " + x.text() + " to " + shape.text());
  return {{x.dtype, std::move(shape)}};
}

void gradient(Gradient& g) { g.set(0, g.emit(reshape_op, {g.dout()}, {{"shape", g.dims(g.in(0))}})); }

std::vector<Desc> infer_detach(const Infer& a) { return {required(a, 0)}; }

}  // namespace

const OpDef reshape_op{.name = "reshape/1", .infer = infer, .gradient = gradient, .alias = true};
const OpDef detach_op{.name = "detach/1", .infer = infer_detach, .alias = true};

}  // namespace lh
