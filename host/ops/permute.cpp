// permute: y.dims[i] = x.dims[axes[i]].
#include <algorithm>

#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  const std::vector<int64_t>& axes = a.attrs.list("axes");
  std::vector<int64_t> sorted = axes, dims;
  std::ranges::sort(sorted);
  bool valid = static_cast<int64_t>(axes.size()) == x.shape.rank();
  for (size_t i = 0; i < sorted.size(); ++i) valid &= sorted[i] == static_cast<int64_t>(i);
  expect(valid, "axes are not a permutation of the axes of " + x.text());
  for (const int64_t axis : axes) dims.push_back(x.shape[axis]);
  return {{x.dtype, Shape(std::move(dims))}};
}

void gradient(Gradient& g) {
  const std::vector<int64_t>& axes = g.attrs().list("axes");
  std::vector<int64_t> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[static_cast<size_t>(axes[i])] = static_cast<int64_t>(i);
  g.set(0, g.emit(permute_op, {g.dout()}, {{"axes", inverse}}));
}

lk_status launch(const Launch& l) {
  lk_permute_params p{.x = l.in[0], .y = l.out[0], .axes = {}};
  std::ranges::copy(l.attrs.list("axes"), p.axes);
  return lk_permute(l.context, &p);
}

}  // namespace

const OpDef permute_op{.name = "permute/1", .infer = infer, .gradient = gradient, .launch = launch};

}  // namespace lh
