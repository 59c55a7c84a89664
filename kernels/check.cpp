// One function for each thing that can be wrong with an argument.
#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lines.h"
#include "nf4_format.h"

namespace lk {

namespace {

struct Bytes {
  int64_t begin, line, pitch, extent;
  explicit Bytes(const lk_tensor& t) : begin(reinterpret_cast<intptr_t>(t.data)) {
    const int64_t size = lk_dtype_size(t.dtype), count = lk_numel(&t);
    const Lines lines = lines_of(t).value_or(Lines{count, count});
    line = lines.line * size, pitch = lines.pitch * size, extent = extent_of(t, lines) * size;
    if (lines.dense()) line = pitch = extent = lk_tensor_bytes(&t);
  }
};

bool overlap(const lk_tensor& first, const lk_tensor& second) {
  const Bytes x(first), y(second);
  if (x.begin >= y.begin + y.extent || y.begin >= x.begin + x.extent) return false;
  if (x.pitch != y.pitch) return true;
  const int64_t apart = ((y.begin - x.begin) % x.pitch + x.pitch) % x.pitch;  // columns side by side share no byte
  return apart < x.line || apart + y.line > x.pitch;
}

std::string strides_text(const lk_tensor& t) {
  return "strides " + shape_text(Shape(t.strides, static_cast<size_t>(t.rank)));
}

bool is_float(lk_dtype dtype) { return dtype == LK_F32 || dtype == LK_F16 || dtype == LK_BF16; }

// Whether sizes in bytes and distances between elements are numbers of int64_t, whatever the type.
bool addressable(const lk_tensor& t) {
  constexpr int64_t most = INT64_MAX / 8;
  int64_t count = 1, last = 0;
  for (int32_t i = 0; i < t.rank; ++i) {
    int64_t span;
    if (__builtin_mul_overflow(count, t.dims[i], &count) || count > most) return false;
    if (__builtin_mul_overflow(t.dims[i] - 1, t.strides[i], &span)) return false;
    if (__builtin_add_overflow(last, span, &last) || last > most) return false;
  }
  return true;
}

bool is_fp8(lk_dtype dtype) { return dtype == LK_F8_E4M3 || dtype == LK_F8_E5M2; }

}  // namespace

std::string shape_text(Shape shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::vector<int64_t> with_last(const lk_tensor& tensor, int64_t size) {
  std::vector<int64_t> shape(tensor.dims, tensor.dims + tensor.rank);
  shape.back() = size;
  return shape;
}

void Check::fail(const char* name, const std::string& expected, const std::string& found) const {
  throw Error(LK_E_INVALID, std::string(op_) + ": " + name + ": expected " + expected + ", found " + found);
}

void Check::tensor(Arg arg) const {
  dimensions(arg);
  const lk_dtype dtype = arg.tensor->dtype;
  require(dtype != LK_NF4, arg.name, "another type than nf4, which weights of linear layers have", "nf4");
  require(lk_dtype_size(dtype) > 0, arg.name, "a known dtype", [&] { return "dtype " + std::to_string(dtype); });
}

void Check::dimensions(Arg arg) const {
  const lk_tensor& t = *arg.tensor;
  require(t.data != nullptr, arg.name, "a tensor", "data NULL");
  require(t.rank >= 0 && t.rank <= LK_MAX_RANK, arg.name, "rank 0 to 8",
          [&] { return "rank " + std::to_string(t.rank); });
  for (const int64_t dim : shape_of(t)) {
    require(dim >= 1, arg.name, "every dimension to be at least 1", shape_of(t));
  }
  require(addressable(t), arg.name, "as many elements as memory can hold",
          [&] { return "shape " + shape_text(shape_of(t)) + ", " + strides_text(t); });
  const auto strides = [&] { return strides_text(t); };
  const std::optional<Lines> lines = lines_of(t);
  if (arg.in_lines) {
    require(lines.has_value(), arg.name, "dense, or lines of last axes at one pitch", strides);
  } else {
    require(lines && lines->dense(), arg.name, "dense", strides);
  }
}

void Check::floating(Arg arg) const {
  tensor(arg);
  require(is_float(arg.tensor->dtype), arg.name, "f32, f16 or bf16", lk_dtype_name(arg.tensor->dtype));
}

void Check::values(Arg arg) const {
  tensor(arg);
  const lk_dtype dtype = arg.tensor->dtype;
  require(is_float(dtype) || is_fp8(dtype), arg.name, "f32, f16, bf16, f8_e4m3 or f8_e5m2", lk_dtype_name(dtype));
}

void Check::weight(Arg arg, Arg scale) const {
  rank(arg, 1, LK_MAX_RANK);
  const lk_tensor &weight = *arg.tensor, &factors = *scale.tensor;
  if (weight.dtype == LK_NF4) {
    rank(arg, 2, 2);
    dtype(scale, LK_U8);
    return shape(scale, {lk_nf4_scale_bytes(weight.dims[0] * nf4_row_blocks(weight.dims[1]))});
  }
  require(is_float(weight.dtype) || is_fp8(weight.dtype) || weight.dtype == LK_I8, arg.name,
          "f32, f16, bf16, f8_e4m3, f8_e5m2, i8 or nf4", lk_dtype_name(weight.dtype));
  if (!present(factors)) return;
  dtype(scale, LK_F32);
  const int64_t count = lk_numel(&factors), rows = weight.dims[0];
  require(
      count == 1 || (factors.rank == 1 && count == rows), scale.name,
      [&] { return "one element or shape " + shape_text(Shape(&rows, 1)); }, shape_of(factors));
}

void Check::products(lk_products products, Arg weight) const {
  if (products == LK_PRODUCTS_WIDE) return;
  const bool integers = products == LK_PRODUCTS_I8;
  require(products == LK_PRODUCTS_E4M3 || integers, "products", "one of LK_PRODUCTS_...", products);
  if (!present(*weight.tensor)) return;
  const lk_dtype dtype = weight.tensor->dtype;
  require(integers ? dtype == LK_I8 : is_fp8(dtype), weight.name,
          integers ? "i8 for products of i8" : "f8_e4m3 or f8_e5m2 for products of fp8", lk_dtype_name(dtype));
}

void Check::dtype(Arg arg, lk_dtype dtype) const {
  tensor(arg);
  require(arg.tensor->dtype == dtype, arg.name, lk_dtype_name(dtype), lk_dtype_name(arg.tensor->dtype));
}

void Check::number(Arg arg) const {
  tensor(arg);
  require(is_float(arg.tensor->dtype) || arg.tensor->dtype == LK_I32, arg.name, "f32, f16, bf16 or i32",
          lk_dtype_name(arg.tensor->dtype));
}

void Check::number_like(Arg arg, Arg like) const {
  if (like.tensor->dtype == LK_I32) return dtype(arg, LK_I32);
  floating(arg);
}

void Check::broadcast(Arg y, std::initializer_list<Arg> inputs) const {
  std::vector<int64_t> expected;
  for (const Arg& input : inputs) {
    const Shape dims = shape_of(*input.tensor);
    if (dims.size() > expected.size()) expected.insert(expected.begin(), dims.size() - expected.size(), 1);
    for (size_t i = 0; i < dims.size(); ++i) {
      int64_t& size = expected[expected.size() - dims.size() + i];
      require(
          dims[i] == size || dims[i] == 1 || size == 1, input.name,
          [&] { return "a shape that broadcasts with " + shape_text(expected); }, dims);
      if (size == 1) size = dims[i];
    }
  }
  shape(y, expected);
}

void Check::rank(Arg arg, int32_t lowest, int32_t highest) const {
  dimensions(arg);
  const int32_t rank = arg.tensor->rank;
  const auto range = [&] {
    return "rank " + std::to_string(lowest) + (lowest == highest ? "" : " to " + std::to_string(highest));
  };
  require(rank >= lowest && rank <= highest, arg.name, range,
          [&] { return "shape " + shape_text(shape_of(*arg.tensor)); });
}

void Check::shape(Arg arg, Shape expected) const {
  dimensions(arg);
  const Shape found = shape_of(*arg.tensor);
  const bool equal = found.size() == expected.size() && std::equal(found.begin(), found.end(), expected.begin());
  if (!equal) fail(arg.name, "shape " + shape_text(expected), shape_text(found));
}

void Check::optional(Arg arg, Shape expected) const {
  if (!present(*arg.tensor)) return;
  floating(arg);
  shape(arg, expected);
}

void Check::optional_per_image(Arg arg, const lk_tensor& x) const {
  if (arg.tensor->rank == 3) {
    optional(arg, {x.dims[0], 1, x.dims[2]});
  } else {
    optional(arg, {x.dims[0], x.dims[2]});
  }
}

void Check::angles(Arg x, Arg cos, Arg sin) const {
  const int64_t* const dims = x.tensor->dims;
  const int64_t half = dims[3] / 2;
  require(dims[3] % 2 == 0, x.name, "an even last axis", shape_of(*x.tensor));
  dtype(cos, LK_F32);
  rank(cos, 2, 3);
  const int64_t width = cos.tensor->dims[cos.tensor->rank - 1] == dims[3] ? dims[3] : half;
  if (cos.tensor->rank == 2) {
    shape(cos, {dims[1], width});
  } else {
    shape(cos, {dims[0], dims[1], width});
  }
  dtype(sin, LK_F32);
  shape(sin, shape_of(*cos.tensor));
}

void Check::scalar_f32(Arg arg) const {
  dtype(arg, LK_F32);
  require(lk_numel(arg.tensor) == 1, arg.name, "one element",
          [&] { return "shape " + shape_text(shape_of(*arg.tensor)); });
}

void Check::separate(Arg output, std::initializer_list<Arg> inputs) const {
  if (!present(*output.tensor)) return;
  for (const Arg& input : inputs) {
    if (!present(*input.tensor)) continue;
    require(
        !overlap(*output.tensor, *input.tensor), output.name,
        [&] { return std::string("no overlap with ") + input.name; }, "shared memory");
  }
}

void Check::in_place_or_separate(Arg output, Arg input) const {
  const lk_tensor &y = *output.tensor, &x = *input.tensor;
  const std::optional<Lines> to = lines_of(y), from = lines_of(x);
  const bool same_lines =
      to && from && (to->dense() ? from->dense() : to->line == from->line && to->pitch == from->pitch);
  if (y.data == x.data && y.dtype == x.dtype && lk_numel(&y) == lk_numel(&x) && same_lines) return;
  separate(output, {input});
}

void Check::positive(const char* name, double value) const {
  require(std::isfinite(value) && value > 0, name, "a finite value above 0", value);
}

void Check::finite(const char* name, double value) const {
  require(std::isfinite(value), name, "a finite value", value);
}

}  // namespace lk
