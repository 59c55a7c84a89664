// Tensors for kernel tests: values in float64 beside their stored form, inputs rounded to the storage type, outputs
// poisoned with NaN, and the comparison with its tolerance.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "lora_kernels.h"
#include "support/device.h"
#include "support/reference/tensor.h"

namespace lk_test {

namespace reference = lh::test::reference;
using Shape = reference::Dims;
using reference::count_of;
using reference::Values;

// The context of the running test; what it has enqueued is done before its results are read.
inline lk_context*& running_context() {
  static lk_context* context = nullptr;
  return context;
}

inline void finish_running() {
  if (running_context() == nullptr) return;
  EXPECT_EQ(lk_synchronize(running_context()), LK_OK) << lk_last_error(running_context());
}

struct ContextDeleter {
  void operator()(lk_context* context) const {
    if (running_context() == context) running_context() = nullptr;
    lk_context_destroy(context);
  }
};
using Context = std::unique_ptr<lk_context, ContextDeleter>;

inline Context make_context(int32_t threads = 2) {
  const lk_context_params params{.backend = lh::test::tested_device() == "cuda" ? LK_CUDA : LK_CPU,
                                 .device = 0,
                                 .threads = threads,
                                 .fast = 0,
                                 .tuning_cache = nullptr};
  lk_context* context = nullptr;
  EXPECT_EQ(lk_context_create(&params, &context), LK_OK) << lk_last_error(nullptr);
  running_context() = context;
  return Context(context);
}

// The context that owns the memory of all tensors; tests run on contexts of their own.
inline lk_context* memory_context() {
  static const Context context = [] {
    lk_context* const running = running_context();
    Context made = make_context();
    running_context() = running;
    return made;
  }();
  return context.get();
}

// Whether the device multiplies bf16 by oneDNN (kernels/cpu/bf16_gemm.h): a build and a processor may lack it.
inline bool has_onednn() {
  lk_device_info info{};
  EXPECT_EQ(lk_get_device_info(memory_context(), &info), LK_OK) << lk_last_error(memory_context());
  return std::string(info.libraries).find("oneDNN") != std::string::npos;
}

// Dense device memory of any type; converts to and from float64 with lk_cast, which has its own exhaustive tests.
class Tensor {
 public:
  Tensor(const Shape& shape, lk_dtype dtype) {
    view_.dtype = dtype;
    view_.rank = static_cast<int32_t>(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) view_.dims[i] = shape[i];
    size_ = lk_tensor_bytes(&view_);
    EXPECT_EQ(lk_alloc(memory_context(), size_, &view_.data), LK_OK) << lk_last_error(memory_context());
    data_ = {view_.data, [](void* data) { lk_free(memory_context(), data); }};
  }
  Tensor(const Tensor&) = default;  // the same memory
  Tensor(Tensor&&) = default;
  lk_tensor view() const { return view_; }
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> all(static_cast<size_t>(size_));
    finish_running();
    EXPECT_EQ(lk_download(memory_context(), all.data(), view_.data, size_), LK_OK);
    return all;
  }
  void write(const void* from, int64_t offset, int64_t bytes) const {
    finish_running();
    EXPECT_EQ(lk_upload(memory_context(), static_cast<char*>(view_.data) + offset, from, bytes), LK_OK);
  }
  template <class T>
  void put(int64_t index, T value) const {
    write(&value, index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  }

  void store(lk_context* context, const Values& values) {
    const std::vector<float> floats(values.begin(), values.end());
    const Tensor from(shape(), LK_F32);
    from.write(floats.data(), 0, from.size_);
    const lk_cast_params p{.x = from.view_, .y = view_};
    ASSERT_EQ(lk_cast(context, &p), LK_OK) << lk_last_error(context);
    ASSERT_EQ(lk_synchronize(context), LK_OK) << lk_last_error(context);
  }

  Values load(lk_context* context) const {
    const Tensor to(shape(), LK_F32);
    const lk_cast_params p{.x = view_, .y = to.view_};
    EXPECT_EQ(lk_cast(context, &p), LK_OK) << lk_last_error(context);
    EXPECT_EQ(lk_synchronize(context), LK_OK) << lk_last_error(context);
    const std::vector<unsigned char> raw = to.bytes();
    std::vector<float> floats(raw.size() / sizeof(float));
    std::memcpy(floats.data(), raw.data(), raw.size());
    return Values(floats.begin(), floats.end());
  }

 private:
  Shape shape() const { return Shape(view_.dims, view_.dims + view_.rank); }
  int64_t size_ = 0;
  std::shared_ptr<void> data_;
  lk_tensor view_{};
};

inline Tensor random_tensor(lk_context* context, std::mt19937& random, const Shape& shape, lk_dtype dtype, double low,
                            double high) {
  Tensor tensor(shape, dtype);
  Values values(static_cast<size_t>(count_of(shape)));
  std::uniform_real_distribution<double> uniform(low, high);
  for (double& value : values) value = uniform(random);
  tensor.store(context, values);
  return tensor;
}

inline Tensor poisoned(lk_context* context, const Shape& shape, lk_dtype dtype) {
  Tensor tensor(shape, dtype);
  tensor.store(context, Values(static_cast<size_t>(count_of(shape)), std::numeric_limits<double>::quiet_NaN()));
  return tensor;
}

// Half the distance between neighbouring values near 1, and the smallest normal number.
inline double rounding(lk_dtype dtype) {
  return dtype == LK_F32 ? std::ldexp(1.0, -24) : dtype == LK_F16 ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
}

// The allowed error of a result that is a sum of up to `depth` float products: rounding to the storage type, plus k
// times the expected error eps sqrt(depth) of summing terms of the size of the largest result. k = 8 covers the
// handful of further float operations before and after the sum and the tail of the random walk. `inner` further
// intermediates of the size of the largest result are rounded to the storage type.
inline double tolerance(lk_dtype dtype, double reference, double largest, int64_t depth, int inner = 0) {
  constexpr double k = 8.0;
  const double storage = rounding(dtype) * (std::max(std::fabs(reference), std::ldexp(1.0, -14)) + inner * largest);
  return 1.01 * storage + k * std::ldexp(1.0, -24) * std::sqrt(static_cast<double>(depth)) * largest;
}

inline double largest_of(const Values& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

inline void expect_near(const std::string& what, const Values& got, const Values& reference, lk_dtype dtype,
                        int64_t depth, int inner = 0) {
  ASSERT_EQ(got.size(), reference.size()) << what;
  const double largest = largest_of(reference);
  for (size_t i = 0; i < got.size(); ++i) {
    const double allowed = tolerance(dtype, reference[i], largest, depth, inner);
    ASSERT_LE(std::fabs(got[i] - reference[i]), allowed)
        << what << " element " << i << ": found " << got[i] << ", expected " << reference[i];
  }
}

// A context, and tensors of given values.
class Kernels : public testing::Test {
 protected:
  Context context = make_context();
  std::mt19937 random{7};

  Tensor floats(const Shape& shape, const Values& values) {
    Tensor tensor(shape, LK_F32);
    tensor.store(context.get(), values);
    return tensor;
  }
  Tensor integers(const Shape& shape, const std::vector<int32_t>& values) {
    Tensor tensor(shape, LK_I32);
    tensor.write(values.data(), 0, static_cast<int64_t>(values.size() * sizeof(int32_t)));
    return tensor;
  }
  Tensor counting(const Shape& shape) {
    Values values(static_cast<size_t>(count_of(shape)));
    std::iota(values.begin(), values.end(), 1.0);
    return floats(shape, values);
  }
  Values load(const Tensor& tensor) { return tensor.load(context.get()); }
};

}  // namespace lk_test
