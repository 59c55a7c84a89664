// Shapes and conversions between storage types, element by element.
#include "core/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "core/swap_axes.h"

namespace lh {

int64_t dtype_size(DType dtype) { return lk_dtype_size(static_cast<lk_dtype>(dtype)); }

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::f16: return "float16";
    case DType::bf16: return "bfloat16";
    case DType::f8_e4m3: return "float8_e4m3";
    case DType::f8_e5m2: return "float8_e5m2";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::u8: return "uint8";
    case DType::i8: return "int8";
    case DType::nf4: return "nf4";
  }
  return "?";
}

bool is_float(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f8_e4m3:
    case DType::f8_e5m2: return true;
    default: return false;
  }
}

bool is_fp8(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }

bool is_quantised(DType dtype) { return is_fp8(dtype) || dtype == DType::i8 || dtype == DType::nf4; }

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) fail(Code::data, "size {} x {} overflows 64 bits", a, b);
  return result;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) fail(Code::data, "size {} + {} overflows 64 bits", a, b);
  return result;
}

Shape::Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {
  if (rank() > LK_MAX_RANK) fail(Code::data, "rank {} is above the limit of {}", rank(), LK_MAX_RANK);
  for (const int64_t d : dims_)
    if (d < 0) fail(Code::data, "negative dimension in shape {}", text());
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (const int64_t d : dims_) n = checked_mul(n, d);
  return n;
}

Shape Shape::with(int64_t axis, int64_t length) const {
  std::vector<int64_t> dims = dims_;
  dims.at(static_cast<size_t>(axis < 0 ? axis + rank() : axis)) = length;
  return Shape(std::move(dims));
}

std::string Shape::text() const { return fmt::format("[{}]", fmt::join(dims_, ", ")); }

int64_t Desc::bytes() const {
  if (dtype != DType::nf4) return checked_mul(shape.numel(), dtype_size(dtype));
  const int64_t width = shape[shape.rank() - 1];  // rows begin at a byte
  return shape.with(-1, width / 2 + width % 2).numel();
}

std::string Desc::text() const { return fmt::format("{} {}", dtype_name(dtype), shape.text()); }

WeightForm WeightForm::of(DType dtype, const Shape& matrix) {
  const int64_t blocks = (matrix[1] - 1) / LK_NF4_BLOCK + 1;
  return {dtype, dtype == DType::nf4 ? checked_mul(matrix[0], blocks) : matrix[0]};
}

Desc WeightForm::scale() const {
  if (dtype == DType::nf4) return {DType::u8, {lk_nf4_scale_bytes(factors)}};
  return {DType::f32, {factors}};
}

HostTensor::HostTensor(Desc d) : desc(std::move(d)), data(static_cast<size_t>(desc.bytes())) {}

HostTensor HostTensor::from_floats(Shape shape, std::span<const float> values) {
  HostTensor t(Desc{DType::f32, std::move(shape)});
  std::ranges::copy(values, t.as<float>().begin());
  return t;
}

HostTensor HostTensor::from_ints(Shape shape, std::span<const int32_t> values) {
  HostTensor t(Desc{DType::i32, std::move(shape)});
  std::ranges::copy(values, t.as<int32_t>().begin());
  return t;
}

lk_tensor kernel_tensor(const Desc& desc, void* data) {
  lk_tensor t{};
  t.data = data;
  t.dtype = static_cast<lk_dtype>(desc.dtype);
  t.rank = static_cast<int32_t>(desc.shape.rank());
  std::ranges::copy(desc.shape.dims(), t.dims);
  return t;
}

std::array<int64_t, LK_MAX_RANK> kernel_strides(const lk_tensor& tensor) {
  std::array<int64_t, LK_MAX_RANK> strides{};
  const bool given = std::ranges::any_of(tensor.strides, [](int64_t s) { return s != 0; });
  int64_t next = 1;
  for (int32_t i = tensor.rank - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = given ? tensor.strides[i] : next;
    next *= tensor.dims[i];
  }
  return strides;
}

namespace {

template <typename Out>
void store(Out* dst, int64_t i, double value) {
  dst[i] = static_cast<Out>(value);
}

double load_as_double(DType dtype, const void* src, int64_t i) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(src)[i];
    case DType::f16: return float_from_f16(static_cast<const uint16_t*>(src)[i]);
    case DType::bf16: return float_from_bf16(static_cast<const uint16_t*>(src)[i]);
    case DType::f8_e4m3: return float_from_e4m3(static_cast<const uint8_t*>(src)[i]);
    case DType::f8_e5m2: return float_from_e5m2(static_cast<const uint8_t*>(src)[i]);
    case DType::i32: return static_cast<const int32_t*>(src)[i];
    case DType::i64: return static_cast<double>(static_cast<const int64_t*>(src)[i]);
    case DType::u8: return static_cast<const uint8_t*>(src)[i];
    case DType::i8: return static_cast<const int8_t*>(src)[i];
    case DType::nf4: break;  // its elements have no values without their factors
  }
  return 0;
}

constexpr int64_t least_elements = int64_t{1} << 18;  // of a thread

template <typename From, typename To>
void convert_each(const void* src, void* dst, int64_t count, To (*law)(From)) {
  const auto* const in = static_cast<const From*>(src);
  auto* const out = static_cast<To*>(dst);
  in_threads(count, least_elements,
             [=](int64_t first, int64_t end) { std::transform(in + first, in + end, out + first, law); });
}

// The types that files of weights and adapters are made of, by the same functions as all others. Whether they were.
bool convert_common(DType from, const void* src, DType to, void* dst, int64_t count) {
  if (from == DType::f32 && to == DType::bf16)
    convert_each<float, uint16_t>(src, dst, count, [](float v) { return bf16_from_float(v); });
  else if (from == DType::f32 && to == DType::f16)
    convert_each<float, uint16_t>(src, dst, count, [](float v) { return f16_from_float(v); });
  else if (from == DType::bf16 && to == DType::f32)
    convert_each<uint16_t, float>(src, dst, count, [](uint16_t v) { return float_from_bf16(v); });
  else if (from == DType::f16 && to == DType::f32)
    convert_each<uint16_t, float>(src, dst, count, [](uint16_t v) { return float_from_f16(v); });
  else
    return false;
  return true;
}

}  // namespace

void convert(DType from, const void* src, DType to, void* dst, int64_t count) {
  if (from == DType::nf4 || to == DType::nf4) fail(Code::internal, "nf4 is no type of single elements");
  if (from == to) {
    std::memcpy(dst, src, static_cast<size_t>(count * dtype_size(from)));
    return;
  }
  if (convert_common(from, src, to, dst, count)) return;
  for (int64_t i = 0; i < count; ++i) {
    const double v = load_as_double(from, src, i);
    switch (to) {
      case DType::f32: store(static_cast<float*>(dst), i, v); break;
      case DType::f16: static_cast<uint16_t*>(dst)[i] = f16_from_float(static_cast<float>(v)); break;
      case DType::bf16: static_cast<uint16_t*>(dst)[i] = bf16_from_float(static_cast<float>(v)); break;
      case DType::f8_e4m3: static_cast<uint8_t*>(dst)[i] = e4m3_from_float(static_cast<float>(v)); break;
      case DType::f8_e5m2: static_cast<uint8_t*>(dst)[i] = e5m2_from_float(static_cast<float>(v)); break;
      case DType::i32: store(static_cast<int32_t*>(dst), i, v); break;
      case DType::i64: store(static_cast<int64_t*>(dst), i, v); break;
      case DType::u8: store(static_cast<uint8_t*>(dst), i, v); break;
      case DType::i8: store(static_cast<int8_t*>(dst), i, v); break;
      case DType::nf4: break;
    }
  }
}

HostTensor converted(const HostTensor& tensor, DType dtype) {
  HostTensor out(Desc{dtype, tensor.desc.shape});
  convert(tensor.desc.dtype, tensor.data.data(), dtype, out.data.data(), tensor.desc.shape.numel());
  return out;
}

int64_t count_non_finite(DType dtype, const void* data, int64_t count) {
  // An exponent of ones is a NaN or an infinity; e4m3 has NaN alone, with all bits set.
  const auto with_bits = [&]<typename Bits>(Bits mask) {
    const auto* bits = static_cast<const Bits*>(data);
    std::atomic<int64_t> found = 0;
    in_threads(count, least_elements, [&](int64_t first, int64_t end) {
      found += std::count_if(bits + first, bits + end, [&](Bits v) { return (v & mask) == mask; });
    });
    return found.load();
  };
  switch (dtype) {
    case DType::f32: return with_bits(uint32_t{0x7f800000});
    case DType::f16: return with_bits(uint16_t{0x7c00});
    case DType::bf16: return with_bits(uint16_t{0x7f80});
    case DType::f8_e4m3: return with_bits(uint8_t{0x7f});
    case DType::f8_e5m2: return with_bits(uint8_t{0x7c});
    default: return 0;
  }
}

bool all_finite(const HostTensor& tensor) {
  return count_non_finite(tensor.desc.dtype, tensor.data.data(), tensor.desc.shape.numel()) == 0;
}

namespace {

// The axes a and b may each stand for several.
HostTensor swapped(const HostTensor& t, int64_t a, int64_t b, const Shape& shape) {
  HostTensor out(Desc{DType::f32, shape});
  swap_axes(shape[0], a, b, dtype_size(DType::f32), std::as_bytes(t.as<float>()).data(), out.data.data());
  return out;
}

}  // namespace

HostTensor nchw_to_nhwc(const HostTensor& t) {
  const Shape& s = t.desc.shape;
  return swapped(t, s[1], s[2] * s[3], {s[0], s[2], s[3], s[1]});
}

HostTensor nhwc_to_nchw(const HostTensor& t) {
  const Shape& s = t.desc.shape;
  return swapped(t, s[1] * s[2], s[3], {s[0], s[3], s[1], s[2]});
}

}  // namespace lh
