// Element types, shapes and tensors in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora_kernels.h"

namespace lh {

// Values equal lk_dtype and lh_dtype.
enum class DType : int32_t {
  f32 = LK_F32,
  f16 = LK_F16,
  bf16 = LK_BF16,
  f8_e4m3 = LK_F8_E4M3,
  f8_e5m2 = LK_F8_E5M2,
  i32 = LK_I32,
  i64 = LK_I64,
  u8 = LK_U8,
  // What weights are kept as, and nothing else; not in files.
  i8 = LK_I8,
  nf4 = LK_NF4,
};

int64_t dtype_size(DType dtype);           // 0 for nf4, which has two elements in a byte
std::string_view dtype_name(DType dtype);  // "float32", "bfloat16", ...
bool is_float(DType dtype);
bool is_fp8(DType dtype);
bool is_quantised(DType dtype);  // fp8, i8 or nf4

// Checked 64-bit arithmetic for sizes that come from outside; throws lh::Error(Code::data).
int64_t checked_mul(int64_t a, int64_t b);
int64_t checked_add(int64_t a, int64_t b);

// Row-major dimensions, rank <= 8.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::vector<int64_t>(dims)) {}
  explicit Shape(std::vector<int64_t> dims);

  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  int64_t operator[](int64_t axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t numel() const;  // checked; 1 for rank 0
  std::span<const int64_t> dims() const { return dims_; }
  bool operator==(const Shape&) const = default;

  // Shape with one axis set to another length; negative axes count from the end.
  Shape with(int64_t axis, int64_t length) const;
  std::string text() const;  // "[2, 16, 8]"

 private:
  std::vector<int64_t> dims_;
};

struct Desc {
  DType dtype = DType::f32;
  Shape shape;
  int64_t bytes() const;
  std::string text() const;  // "bfloat16 [2, 16, 8]"
  bool operator==(const Desc&) const = default;
};

// How a weight is kept: elements of `dtype`, times factors: none (0), one, one for each row, or of nf4 one for each
// block.
struct WeightForm {
  DType dtype = DType::f32;
  int64_t factors = 0;
  // The form in which a matrix is kept in a quantised type, where it is rounded to it here.
  static WeightForm of(DType dtype, const Shape& matrix);
  Desc scale() const;  // of the tensor that holds the factors: float32, or of nf4 bytes (lora_kernels.h)
  bool operator==(const WeightForm&) const = default;
};

// A dense tensor that owns its bytes.
struct HostTensor {
  Desc desc;
  std::vector<std::byte> data;

  HostTensor() = default;
  explicit HostTensor(Desc d);
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data.data()), data.size() / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }
  static HostTensor from_floats(Shape shape, std::span<const float> values);
  static HostTensor from_ints(Shape shape, std::span<const int32_t> values);
};

using NamedTensors = std::map<std::string, HostTensor>;

lk_tensor kernel_tensor(const Desc& desc, void* data);
// Its strides, those of a dense one where it has none.
std::array<int64_t, LK_MAX_RANK> kernel_strides(const lk_tensor& tensor);

// Element conversion on the host (round to nearest even), used by files and tests.
void convert(DType from, const void* src, DType to, void* dst, int64_t count);
HostTensor converted(const HostTensor& tensor, DType dtype);
int64_t count_non_finite(DType dtype, const void* data, int64_t count);  // NaNs and infinities among the elements
bool all_finite(const HostTensor& tensor);

// float32 [N, C, H, W] <-> [N, H, W, C].
HostTensor nchw_to_nhwc(const HostTensor& tensor);
HostTensor nhwc_to_nchw(const HostTensor& tensor);

}  // namespace lh
