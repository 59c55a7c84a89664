// Eight elements as they are stored. Loading them apart from unpacking lets a loop have several loads under way before
// it looks at the type: `Bits` per element is a template argument, which of the types of that size a value.
#pragma once

#include "cuda/nf4.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

__host__ __device__ inline int lk_bits(lk_dtype dtype) {  // of a floating type, i8 or nf4
  return dtype == LK_F32 ? 32 : dtype == LK_F16 || dtype == LK_BF16 ? 16 : dtype == LK_NF4 ? 4 : 8;
}

template <int Bits>
struct Raw {
  uint32_t words[Bits / 4];
};

// Elements i .. i + 7; i is a multiple of 8 and the data aligned to 16 bytes.
template <int Bits>
__device__ inline Raw<Bits> load_raw(const void* data, int64_t i) {
  const char* const from = static_cast<const char*>(data) + i * Bits / 8;
  Raw<Bits> raw;
  if constexpr (Bits == 4) {
    raw.words[0] = *reinterpret_cast<const uint32_t*>(from);
  } else if constexpr (Bits == 8) {
    const uint2 a = *reinterpret_cast<const uint2*>(from);
    raw.words[0] = a.x, raw.words[1] = a.y;
  } else {
#pragma unroll
    for (int k = 0; k < Bits / 16; ++k) {
      const uint4 a = reinterpret_cast<const uint4*>(from)[k];
      raw.words[4 * k] = a.x, raw.words[4 * k + 1] = a.y, raw.words[4 * k + 2] = a.z, raw.words[4 * k + 3] = a.w;
    }
  }
  return raw;
}

// The levels of nf4, without the factors of their blocks.
template <int Bits>
__device__ inline void unpack(const Raw<Bits>& raw, lk_dtype dtype, float (&v)[8]) {
  if constexpr (Bits == 32) {
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __uint_as_float(raw.words[k]);
  } else if constexpr (Bits == 16) {
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
  } else if constexpr (Bits == 4) {
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = nf4_table.values[raw.words[0] >> (8 * (k / 2) + 4 * (1 - k % 2)) & 15u];
  } else if (dtype == LK_I8) {
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = static_cast<float>(static_cast<int8_t>(raw.words[k / 4] >> (8 * (k % 4))));
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
