// concat, split, slice, pad and every: all are copies of a block from one tensor to a place in another.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ops/ops.h"

namespace lh {
namespace {

// Whether the block of x that begins at x_at along the axis is that of y at y_at already (run/views.h).
bool is_there(const lk_tensor& x, const lk_tensor& y, int64_t axis, int64_t x_at, int64_t y_at, int64_t extent) {
  const auto x_strides = kernel_strides(x), y_strides = kernel_strides(y);
  const int64_t size = dtype_size(static_cast<DType>(x.dtype));
  if (static_cast<const std::byte*>(x.data) + x_at * x_strides[static_cast<size_t>(axis)] * size !=
      static_cast<const std::byte*>(y.data) + y_at * y_strides[static_cast<size_t>(axis)] * size)
    return false;
  for (size_t i = 0; i < static_cast<size_t>(x.rank); ++i)
    if ((static_cast<int64_t>(i) == axis ? extent : x.dims[i]) != 1 && x_strides[i] != y_strides[i]) return false;
  return true;
}

// Copies `extent` from `x` at x_at to `y` at y_at, both along one axis. Nothing where it is there already.
lk_status copy_along(lk_context* context, const lk_tensor& x, const lk_tensor& y, int64_t axis, int64_t x_at,
                     int64_t y_at, int64_t extent) {
  if (is_there(x, y, axis, x_at, y_at, extent)) return LK_OK;
  lk_copy_block_params p{.x = x, .y = y, .extent = {}, .x_offset = {}, .y_offset = {}, .x_step = 1};
  std::copy(x.dims, x.dims + x.rank, p.extent);
  p.extent[axis] = extent;
  p.x_offset[axis] = x_at;
  p.y_offset[axis] = y_at;
  return lk_copy_block(context, &p);
}

int64_t positive_axis(const Launch& l) {
  const int64_t axis = l.attrs.i("axis");
  return axis < 0 ? axis + l.in[0].rank : axis;
}

std::vector<Desc> infer_concat(const Infer& a) {
  const Desc& first = required(a, 0);
  const int64_t axis = axis_of(first, a.attrs.i("axis"));
  int64_t total = 0;
  for (size_t i = 0; i < a.in.size(); ++i) {
    const Desc& part = required(a, i);
    expect(part.dtype == first.dtype && part.shape.rank() == first.shape.rank() &&
               part.shape.with(axis, 1) == first.shape.with(axis, 1),
           "parts differ off the joined axis or in type: " + first.text() + " and " + part.text());
    total = checked_add(total, part.shape[axis]);
  }
  return {{first.dtype, first.shape.with(axis, total)}};
}

void concat_gradient(Gradient& g) {
  const int64_t axis = g.attrs().i("axis");
  int64_t start = 0;
  for (size_t i = 0; i < g.input_count(); ++i) {
    const Shape part = g.shape(g.in(i));
    const int64_t length = part[axis < 0 ? axis + part.rank() : axis];
    if (g.needs(i)) g.set(i, g.emit(slice_op, {g.dout()}, {{"axis", axis}, {"start", start}, {"length", length}}));
    start += length;
  }
}

lk_status launch_concat(const Launch& l) {
  const int64_t axis = positive_axis(l);
  int64_t at = 0;
  for (const lk_tensor& part : l.in) {
    const lk_status status = copy_along(l.context, part, l.out[0], axis, 0, at, part.dims[axis]);
    if (status != LK_OK) return status;
    at += part.dims[axis];
  }
  return LK_OK;
}

std::vector<Desc> infer_split(const Infer& a) {
  const Desc& x = required(a, 0);
  const int64_t axis = axis_of(x, a.attrs.i("axis"));
  const std::vector<int64_t>& sizes = a.attrs.list("sizes");
  expect(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == x.shape[axis],
         fmt::format("sizes [{}] do not add up to axis {} of {}", fmt::join(sizes, ", "), axis, x.text()));
  std::vector<Desc> out;
  out.reserve(sizes.size());
  for (const int64_t size : sizes) out.push_back({x.dtype, x.shape.with(axis, size)});
  return out;
}

void split_gradient(Gradient& g) {
  const int64_t axis = g.attrs().i("axis");
  std::vector<Value> parts;
  for (size_t i = 0; i < g.attrs().list("sizes").size(); ++i) {
    Value part = g.dout(i);
    // A piece that nothing reads has gradient zero.
    if (!part) part = g.emit(affine_op, {g.out(i)}, {{"scale", 0.0}, {"shift", 0.0}});
    parts.push_back(part);
  }
  g.set(0, g.emit(concat_op, parts, {{"axis", axis}}));
}

lk_status launch_split(const Launch& l) {
  const int64_t axis = positive_axis(l);
  int64_t at = 0;
  for (const lk_tensor& part : l.out) {
    const int64_t length = part.dims[axis];
    if (part.data != nullptr) {
      const lk_status status = copy_along(l.context, l.in[0], part, axis, at, 0, length);
      if (status != LK_OK) return status;
    }
    at += length;
  }
  return LK_OK;
}

std::vector<Desc> infer_slice(const Infer& a) {
  const Desc& x = required(a, 0);
  const int64_t axis = axis_of(x, a.attrs.i("axis")), start = a.attrs.i("start"), length = a.attrs.i("length");
  expect(start >= 0 && length >= 0 && start <= x.shape[axis] && length <= x.shape[axis] - start,
         fmt::format("elements {} to {} are outside axis {} of {}", start, start + length, axis, x.text()));
  return {{x.dtype, x.shape.with(axis, length)}};
}

void slice_gradient(Gradient& g) {
  const Shape x = g.shape(g.in(0));
  const int64_t axis = g.attrs().i("axis") < 0 ? g.attrs().i("axis") + x.rank() : g.attrs().i("axis");
  std::vector<int64_t> before(static_cast<size_t>(x.rank())), after(static_cast<size_t>(x.rank()));
  before[static_cast<size_t>(axis)] = g.attrs().i("start");
  after[static_cast<size_t>(axis)] = x[axis] - g.attrs().i("start") - g.attrs().i("length");
  g.set(0, g.emit(pad_op, {g.dout()}, {{"before", before}, {"after", after}, {"value", 0.0}}));
}

lk_status launch_slice(const Launch& l) {
  return copy_along(l.context, l.in[0], l.out[0], positive_axis(l), l.attrs.i("start"), 0, l.attrs.i("length"));
}

std::vector<Desc> infer_pad(const Infer& a) {
  const Desc& x = required(a, 0);
  const std::vector<int64_t>&before = a.attrs.list("before"), &after = a.attrs.list("after");
  const auto rank = static_cast<size_t>(x.shape.rank());
  expect(before.size() == rank && after.size() == rank, "before and after need one entry for each axis of " + x.text());
  Shape shape = x.shape;
  for (size_t i = 0; i < rank; ++i) {
    expect(before[i] >= 0 && after[i] >= 0, "padding is negative");
    const auto axis = static_cast<int64_t>(i);
    shape = shape.with(axis, checked_add(shape[axis], checked_add(before[i], after[i])));
  }
  return {{x.dtype, std::move(shape)}};
}

void pad_gradient(Gradient& g) {
  Value result = g.dout();
  const Shape x = g.shape(g.in(0));
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (g.shape(result)[axis] == x[axis]) continue;
    const int64_t start = g.attrs().list("before")[static_cast<size_t>(axis)];
    result = g.emit(slice_op, {result}, {{"axis", axis}, {"start", start}, {"length", x[axis]}});
  }
  g.set(0, result);
}

lk_status launch_pad(const Launch& l) {
  lk_fill_params fill{.y = l.out[0], .value = l.attrs.f("value")};
  if (const lk_status status = lk_fill(l.context, &fill); status != LK_OK) return status;
  lk_copy_block_params p{.x = l.in[0], .y = l.out[0], .extent = {}, .x_offset = {}, .y_offset = {}, .x_step = 1};
  std::copy(p.x.dims, p.x.dims + p.x.rank, p.extent);
  std::ranges::copy(l.attrs.list("before"), p.y_offset);
  return lk_copy_block(l.context, &p);
}

std::vector<Desc> infer_every(const Infer& a) {
  const Desc& x = required(a, 0);
  const int64_t step = a.attrs.i("step");
  expect(step >= 1, fmt::format("step must be at least 1, is {}", step));
  return {{x.dtype, x.shape.with(-1, (x.shape[axis_of(x, -1)] + step - 1) / step)}};
}

lk_status launch_every(const Launch& l) {
  lk_copy_block_params p{
      .x = l.in[0], .y = l.out[0], .extent = {}, .x_offset = {}, .y_offset = {}, .x_step = l.attrs.i("step")};
  std::copy(p.y.dims, p.y.dims + p.y.rank, p.extent);
  return lk_copy_block(l.context, &p);
}

}  // namespace

bool is_cut(const Node& node) { return node.op == &split_op || node.op == &slice_op; }

const OpDef every_op{
    .name = "every/1", .infer = infer_every, .launch = launch_every, .lines_in = {0}, .lines_out = {0}};
const OpDef concat_op{.name = "concat/1", .infer = infer_concat, .gradient = concat_gradient, .launch = launch_concat};
const OpDef split_op{.name = "split/1", .infer = infer_split, .gradient = split_gradient, .launch = launch_split};
const OpDef slice_op{.name = "slice/1", .infer = infer_slice, .gradient = slice_gradient, .launch = launch_slice};
const OpDef pad_op{
    .name = "pad/1", .infer = infer_pad, .gradient = pad_gradient, .launch = launch_pad, .lines_in = {0}};

}  // namespace lh
