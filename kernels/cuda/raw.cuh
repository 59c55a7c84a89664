// Eight elements as they are stored. Loading them apart from unpacking lets a loop have several loads under way before
// it looks at the type: `Bytes` per element is a template argument, which of the types of that size a value.
#pragma once

#include "cuda/types.cuh"

namespace lk::cuda {

__host__ __device__ inline int lk_size(lk_dtype dtype) {  // of a floating type
  return dtype == LK_F32 ? 4 : dtype == LK_F16 || dtype == LK_BF16 ? 2 : 1;
}

template <int Bytes>
struct Raw {
  uint32_t words[2 * Bytes];
};

// Elements i .. i + 7; i is a multiple of 8 and the data aligned to 16 bytes.
template <int Bytes>
__device__ inline Raw<Bytes> load_raw(const void* data, int64_t i) {
  const char* const from = static_cast<const char*>(data) + i * Bytes;
  Raw<Bytes> raw;
  if constexpr (Bytes == 1) {
    const uint2 a = *reinterpret_cast<const uint2*>(from);
    raw.words[0] = a.x, raw.words[1] = a.y;
  } else {
#pragma unroll
    for (int k = 0; k < Bytes / 2; ++k) {
      const uint4 a = reinterpret_cast<const uint4*>(from)[k];
      raw.words[4 * k] = a.x, raw.words[4 * k + 1] = a.y, raw.words[4 * k + 2] = a.z, raw.words[4 * k + 3] = a.w;
    }
  }
  return raw;
}

template <int Bytes>
__device__ inline void unpack(const Raw<Bytes>& raw, lk_dtype dtype, float (&v)[8]) {
  if constexpr (Bytes == 4) {
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __uint_as_float(raw.words[k]);
  } else if constexpr (Bytes == 2) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (dtype == LK_BF16) {
        v[2 * k] = __uint_as_float(raw.words[k] << 16);
        v[2 * k + 1] = __uint_as_float(raw.words[k] & 0xffff0000u);
      } else {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&raw.words[k]));
        v[2 * k] = pair.x, v[2 * k + 1] = pair.y;
      }
    }
  } else {
    const __nv_fp8_interpretation_t kind = dtype == LK_F8_E4M3 ? __NV_E4M3 : __NV_E5M2;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto two = static_cast<__nv_fp8x2_storage_t>(raw.words[k / 2] >> (16 * (k % 2)));
      const float2 pair = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, kind)));
      v[2 * k] = pair.x, v[2 * k + 1] = pair.y;
    }
  }
}

}  // namespace lk::cuda
