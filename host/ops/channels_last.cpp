// The order of a convolution's weight in memory: [O, I, K...] as in files, or [O, K..., I] as kernels read it. The
// shape of a value says the first, whichever it is.
#include <algorithm>
#include <numeric>

#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(x.shape.rank() >= 3, "x must be [O, I, K...], is " + x.text());
  return {x};
}

// The tensor as it lies in memory when channels come last.
lk_tensor last(lk_tensor t) {
  std::rotate(t.dims + 1, t.dims + 2, t.dims + t.rank);
  return t;
}

lk_status launch_to(const Launch& l) {
  lk_permute_params p{.x = l.in[0], .y = last(l.out[0]), .axes = {}};
  std::iota(p.axes, p.axes + p.x.rank, 0);
  std::rotate(p.axes + 1, p.axes + 2, p.axes + p.x.rank);
  return lk_permute(l.context, &p);
}

lk_status launch_from(const Launch& l) {
  lk_permute_params p{.x = last(l.in[0]), .y = l.out[0], .axes = {}};
  std::iota(p.axes, p.axes + p.x.rank, 0);
  std::rotate(p.axes + 1, p.axes + p.x.rank - 1, p.axes + p.x.rank);
  return lk_permute(l.context, &p);
}

}  // namespace

const OpDef to_channels_last_op{.name = "to_channels_last",
                                .infer = infer,
                                .gradient = [](Gradient& g) { g.set(0, g.emit(from_channels_last_op, {g.dout()})); },
                                .launch = launch_to};
const OpDef from_channels_last_op{.name = "from_channels_last",
                                  .infer = infer,
                                  .gradient = [](Gradient& g) { g.set(0, g.emit(to_channels_last_op, {g.dout()})); },
                                  .launch = launch_from};

}  // namespace lh
