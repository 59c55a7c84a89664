// Elements of any storage type as float32 in registers.
//
// A kernel gets the type of each tensor as a value and not as a template argument: the branch is the same for all
// threads and is paid once for 8 elements, while one kernel stands for every mixture of types.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "cuda/cuda.h"
#include "lines.h"

namespace lk::cuda {

struct In {
  const void* data;
  lk_dtype dtype;
};

struct Out {
  void* data;
  lk_dtype dtype;
};

inline In in(const lk_tensor& t) { return {t.data, t.dtype}; }
inline Out out(const lk_tensor& t) { return {t.data, t.dtype}; }

// f32, f16, bf16, fp8 or an integer type.
__device__ inline float load(const In& x, int64_t i) {
  switch (x.dtype) {
    case LK_F32: return static_cast<const float*>(x.data)[i];
    case LK_F16: return __half2float(static_cast<const __half*>(x.data)[i]);
    case LK_BF16: return __bfloat162float(static_cast<const __nv_bfloat16*>(x.data)[i]);
    case LK_F8_E4M3: return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(x.data)[i]);
    case LK_F8_E5M2: return static_cast<float>(static_cast<const __nv_fp8_e5m2*>(x.data)[i]);
    case LK_I32: return static_cast<float>(static_cast<const int32_t*>(x.data)[i]);
    case LK_I64: return static_cast<float>(static_cast<const int64_t*>(x.data)[i]);
    case LK_I8: return static_cast<float>(static_cast<const int8_t*>(x.data)[i]);
    default: return static_cast<float>(static_cast<const uint8_t*>(x.data)[i]);
  }
}

// f32, f16 or bf16, rounded to nearest even.
__device__ inline void store(const Out& y, int64_t i, float v) {
  switch (y.dtype) {
    case LK_F32: static_cast<float*>(y.data)[i] = v; break;
    case LK_F16: static_cast<__half*>(y.data)[i] = __float2half_rn(v); break;
    default: static_cast<__nv_bfloat16*>(y.data)[i] = __float2bfloat16_rn(v); break;
  }
}

constexpr int vector_width = 8;

// Whether eight elements of a row that are neighbours in one line are so aligned in all of them.
inline bool lines_aligned(const lk_tensor& t) {
  return !present(t) || is_dense(t) || lines_of(t)->pitch % vector_width == 0;
}

// Eight values of f16 or bf16 as they lie in memory.
__device__ inline void unpack16(const uint4& packed, lk_dtype dtype, float (&v)[8]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
  if (dtype == LK_BF16) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      v[2 * k] = __uint_as_float(words[k] << 16);
      v[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[k]));
      v[2 * k] = pair.x;
      v[2 * k + 1] = pair.y;
    }
  }
}

// Elements i .. i + 7 of f32, f16 or bf16: i is a multiple of 8 and the data aligned to 16 bytes (aligned(), below).
__device__ inline void load8(const In& x, int64_t i, float (&v)[8]) {
  if (x.dtype == LK_F32) {
    const float4* p = reinterpret_cast<const float4*>(static_cast<const float*>(x.data) + i);
    const float4 a = p[0], b = p[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    return;
  }
  unpack16(*reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(x.data) + i), x.dtype, v);
}

__device__ inline void store8(const Out& y, int64_t i, const float (&v)[8]) {
  if (y.dtype == LK_F32) {
    float4* p = reinterpret_cast<float4*>(static_cast<float*>(y.data) + i);
    p[0] = make_float4(v[0], v[1], v[2], v[3]);
    p[1] = make_float4(v[4], v[5], v[6], v[7]);
    return;
  }
  uint32_t words[4];
  if (y.dtype == LK_BF16) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(v[2 * k], v[2 * k + 1]);
      words[k] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const __half2 pair = __floats2half2_rn(v[2 * k], v[2 * k + 1]);
      words[k] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
  *reinterpret_cast<uint4*>(static_cast<uint16_t*>(y.data) + i) = make_uint4(words[0], words[1], words[2], words[3]);
}

// Whether load8 and store8 may be used on a tensor that is read in rows of `width`.
inline bool aligned(const lk_tensor& t, int64_t width) {
  return width % vector_width == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && lines_aligned(t);
}

constexpr int block_threads = 256;

// Blocks for a loop over `items` with a grid stride: enough to fill the device, no more.
inline dim3 grid_for(const Cuda& cuda, int64_t items) {
  const int64_t most = int64_t{cuda.device().multiProcessorCount} * 16;
  return dim3(static_cast<unsigned>(std::min(std::max<int64_t>(ceil_div(items, block_threads), 1), most)));
}

}  // namespace lk::cuda
