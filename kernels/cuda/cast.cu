// Conversion of storage types through float32 (through int64 between integers). Floats to integers round to nearest
// even and saturate, NaN becomes 0; what is beyond fp8 becomes infinity, or NaN in e4m3, which has none. A scale
// multiplies the value.
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"
#include "cuda/nf4.h"

namespace lk::cuda {

namespace {

constexpr int group = 16;  // fp8 codes of one 16-byte read

// One element for all, or one for each `per_factor` elements; absent where data is nullptr.
struct Factors {
  const float* data;
  int64_t per_factor;
  __device__ float at(int64_t i) const { return data != nullptr ? data[i / per_factor] : 1.0f; }
};

__host__ __device__ inline bool is_integer(lk_dtype dtype) {
  return dtype == LK_I32 || dtype == LK_I64 || dtype == LK_U8 || dtype == LK_I8;
}

__host__ __device__ inline bool is_fp8(lk_dtype dtype) { return dtype == LK_F8_E4M3 || dtype == LK_F8_E5M2; }

__device__ inline __nv_fp8_interpretation_t fp8_format(lk_dtype dtype) {
  return dtype == LK_F8_E4M3 ? __NV_E4M3 : __NV_E5M2;
}

__device__ inline int64_t load_integer(const In& x, int64_t i) {
  switch (x.dtype) {
    case LK_I32: return static_cast<const int32_t*>(x.data)[i];
    case LK_I64: return static_cast<const int64_t*>(x.data)[i];
    case LK_I8: return static_cast<const int8_t*>(x.data)[i];
    default: return static_cast<const uint8_t*>(x.data)[i];
  }
}

__device__ inline void store_integer(const Out& y, int64_t i, int64_t value) {
  switch (y.dtype) {
    case LK_I32:
      static_cast<int32_t*>(y.data)[i] = static_cast<int32_t>(max(int64_t{INT32_MIN}, min(int64_t{INT32_MAX}, value)));
      break;
    case LK_I64: static_cast<int64_t*>(y.data)[i] = value; break;
    case LK_I8:
      static_cast<int8_t*>(y.data)[i] = static_cast<int8_t>(max(int64_t{-128}, min(int64_t{127}, value)));
      break;
    default: static_cast<uint8_t*>(y.data)[i] = static_cast<uint8_t>(max(int64_t{0}, min(int64_t{255}, value))); break;
  }
}

__device__ inline int64_t rounded(float value) {
  constexpr float limit = 9223372036854775808.0f;  // 2^63
  if (value != value) return 0;
  if (value >= limit) return INT64_MAX;
  if (value < -limit) return INT64_MIN;
  return __float2ll_rn(value);
}

// Element by element: integers, towards fp8, floats with a scale.
__global__ void element_kernel(In x, Factors factors, Out y, int64_t count) {
  await_previous();
  const bool through_integer = is_integer(x.dtype) && is_integer(y.dtype) && factors.data == nullptr;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    if (through_integer) {
      store_integer(y, i, load_integer(x, i));
      continue;
    }
    const float value = load(x, i) * factors.at(i);
    if (is_integer(y.dtype)) {
      store_integer(y, i, rounded(value));
    } else if (is_fp8(y.dtype)) {
      static_cast<uint8_t*>(y.data)[i] = __nv_cvt_float_to_fp8(value, __NV_NOSAT, fp8_format(y.dtype));
    } else {
      store(y, i, value);
    }
  }
}

__global__ void float_kernel(ChunksIn x, ChunksOut y, int64_t count) {
  await_previous();
  for (int64_t i = thread_index() * vector_width; i < count; i += thread_count() * vector_width) {
    const int length = chunk_length(count - i);
    float v[8];
    load_chunk(x, i, length, v);
    store_chunk(y, i, length, v);
  }
}

// fp8 to f32, f16 or bf16, both aligned to 16 bytes; a group has one factor. Every fp8 value is exact in f16.
__global__ void fp8_kernel(In x, Factors factors, Out y, int64_t count) {
  await_previous();
  const int64_t groups = count / group;
  const __nv_fp8_interpretation_t format = fp8_format(x.dtype);
  for (int64_t i = thread_index(); i < groups; i += thread_count()) {
    const uint4 raw = static_cast<const uint4*>(x.data)[i];
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    const float factor = factors.at(i * group);
    float v[2][8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const auto codes = static_cast<__nv_fp8x2_storage_t>(words[k / 2] >> (k % 2 * 16));
      const float2 pair = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, format)));
      v[k / 4][k % 4 * 2] = pair.x * factor;
      v[k / 4][k % 4 * 2 + 1] = pair.y * factor;
    }
    store8(y, i * group, v[0]);
    store8(y, i * group + 8, v[1]);
  }
  for (int64_t i = groups * group + thread_index(); i < count; i += thread_count()) {
    store(y, i, load(x, i) * factors.at(i));
  }
}

}  // namespace

void cast(Cuda& cuda, const lk_cast_params& p) {
  if (p.x.dtype == LK_NF4) return widen_nf4(cuda, p.x, p.scale, out(p.y));
  const int64_t count = numel(p.x), per_factor = present(p.scale) ? count / numel(p.scale) : count;
  const Factors factors{static_cast<const float*>(p.scale.data), per_factor};
  const auto is_float = [](const lk_tensor& t) { return !is_integer(t.dtype) && !is_fp8(t.dtype); };
  if (is_float(p.x) && is_float(p.y) && !present(p.scale)) {
    cuda.launch(float_kernel, grid_for(cuda, chunks_of(count)), block_threads, 0, chunks_in(p.x), chunks_out(p.y),
                count);
  } else if (is_fp8(p.x.dtype) && is_float(p.y) && aligned(p.x, 0) && aligned(p.y, 0) &&
             (per_factor == count || per_factor % group == 0)) {
    cuda.launch(fp8_kernel, grid_for(cuda, ceil_div(count, group)), block_threads, 0, in(p.x), factors, out(p.y),
                count);
  } else {
    cuda.launch(element_kernel, grid_for(cuda, count), block_threads, 0, in(p.x), factors, out(p.y), count);
  }
}

}  // namespace lk::cuda
