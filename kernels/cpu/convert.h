// Kernels compute in float; these helpers stand between them and the storage types. A dense f32 tensor is used where it
// lies, without a copy; any other is converted into or out of scratch memory, and so are tensors in lines.
#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

void widen(const Cpu& cpu, const void* src, lk_dtype dtype, float* dst, int64_t count);
void narrow(const Cpu& cpu, const float* src, void* dst, lk_dtype dtype, int64_t count);

// Read access. data() is nullptr for an absent tensor.
class FloatIn {
 public:
  FloatIn(Cpu& cpu, const lk_tensor& tensor);
  // A weight of any type with its scale, which may be absent, multiplied in.
  FloatIn(Cpu& cpu, const lk_tensor& weight, const lk_tensor& scale);
  const float* data() const { return data_; }
  operator const float*() const { return data_; }

 private:
  Scratch<float> scratch_;
  const float* data_;
};

// Write access: the values are stored when the object goes. nullptr for an absent tensor. With `keep` the present
// values are loaded first, for outputs that are added to.
class FloatOut {
 public:
  FloatOut(Cpu& cpu, const lk_tensor& tensor, bool keep = false);
  FloatOut(const FloatOut&) = delete;
  FloatOut& operator=(const FloatOut&) = delete;
  ~FloatOut();
  float* data() const { return data_; }
  operator float*() const { return data_; }

 private:
  Cpu& cpu_;
  const lk_tensor& tensor_;  // kept by the caller as long as this is
  Scratch<float> scratch_;
  float* data_;
};

inline bool present(const lk_tensor& tensor) { return tensor.data != nullptr; }
inline int64_t numel(const lk_tensor& tensor) { return lk_numel(&tensor); }
inline int64_t last_dim(const lk_tensor& tensor) { return tensor.dims[tensor.rank - 1]; }

}  // namespace lk::cpu
