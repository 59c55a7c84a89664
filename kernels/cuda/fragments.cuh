// Operands of mma.m16n8k16 with 16-bit types and float32 sums (PTX ISA, "Matrix fragments for mma.m16n8k16"). On
// capability 7.5, which has mma.m16n8k8 and float16 alone, a product is two of those, on the halves of the same words.
//
// In all of them g = lane / 4 and t = lane % 4. a (16 x 16): word 0 has row g, columns 2t and 2t + 1; word 1 row g + 8;
// words 2 and 3 the same 8 columns on. b (16 x 8): word 0 has rows 2t and 2t + 1 of column g, word 1 the rows 8 on.
// sum (16 x 8): elements 0 and 1 are row g, columns 2t and 2t + 1; 2 and 3 row g + 8.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace lk::cuda {

template <bool Bf16>
__device__ inline uint16_t to_16_bit(float v) {
  if constexpr (Bf16) return __bfloat16_as_ushort(__float2bfloat16_rn(v));
  return __half_as_ushort(__float2half_rn(v));
}

template <bool Bf16>
__device__ inline uint32_t pack(float low, float high) {
  if constexpr (Bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

template <bool Bf16>
__device__ inline float2 unpack(uint32_t pair) {
  if constexpr (Bf16) return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

template <bool Bf16>
__device__ inline void multiply_add(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (Bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#elif __CUDA_ARCH__ >= 750
  if constexpr (!Bf16) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
          : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
          : "r"(a[half * 2]), "r"(a[half * 2 + 1]), "r"(b[half]));
    }
  }
#endif
}

// sum += a b, with one of the two neighbouring factors b in `words`.
template <bool Bf16, int which>
__device__ inline void multiply_add_one(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&words)[4]) {
  const uint32_t b[2] = {words[which * 2], words[which * 2 + 1]};
  multiply_add<Bf16>(sum, a, b);
}

// Four 8 x 8 matrices out of shared memory, whose rows the lanes 8i .. 8i + 7 point to for matrix i: word i has
// elements (g, 2t) and (g, 2t + 1) of it, or of its transpose.
template <bool Transposed>
__device__ inline void load_matrices(uint32_t (&words)[4], const void* row) {
#if __CUDA_ARCH__ >= 750
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

// Eight values of a row of `length`, which are in one piece of 16 bytes if `whole`; those beyond the end count as zero.
__device__ inline uint4 load_eight_16(const uint16_t* row, int64_t first, int64_t length, bool whole) {
  if (whole) return first < length ? *reinterpret_cast<const uint4*>(row + first) : make_uint4(0, 0, 0, 0);
  uint32_t words[4] = {};
#pragma unroll
  for (int k = 0; k < 8; ++k)
    if (first + k < length) words[k / 2] |= static_cast<uint32_t>(row[first + k]) << (16 * (k % 2));
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// 16 bytes from global to shared memory, or 16 zeros; before capability 8.0 through registers, and at once.
__device__ inline void copy_16_async(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(inside ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}
// 8 likewise.
__device__ inline void copy_8_async(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address), "l"(from), "r"(inside ? 8 : 0)
               : "memory");
#endif
}
__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until at most `left` of this thread's groups are on their way.
template <int left>
__device__ inline void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#endif
}

}  // namespace lk::cuda
