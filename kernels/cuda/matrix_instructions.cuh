// The matrix instructions of capability 9.0 as PTX (ISA 8.0, "Asynchronous warpgroup level matrix instructions"). Only
// code compiled for sm_90a may call it. Matrices in shared memory are as hopper.cuh says.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace lk::cuda::hopper {

// Matrix instructions of a warpgroup. Between issue and wait nobody may touch what they read and write. A thread has of
// a result [64, N], with w its warp, l its lane: v[4 j + i] = row 16 w + l / 4 + 8 (i / 2), column 8 j + 2 (l % 4) + i
// % 2.
__device__ inline void multiplies_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void multiplies_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int later>
__device__ inline void multiplies_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(later) : "memory");
}
// The compiler moves no use of `v` over this.
template <int count>
__device__ inline void hold(float (&v)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(v[i])::"memory");
}

template <int count>
__device__ inline void hold(uint32_t (&v)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(v[i])::"memory");
}

// A matrix that begins at `address`: its rows along the sum's axis or across it, 8 of them every 1024 bytes. In units
// of 16 bytes: 2 more for 16 columns further, 128 for 16 rows. Of one that is read across, columns 64 to 127 begin
// `next_columns` bytes after the first.
struct Matrix {
  uint32_t low;
  __device__ explicit Matrix(uint32_t address, uint32_t next_columns = 16)
      : low((address & 0x3ffff) >> 4 | next_columns >> 4 << 16) {}
  __device__ uint64_t at(uint32_t units) const { return uint64_t{0x40000000u | 1024 >> 4} << 32 | (low + units); }
};
// One of 64 columns that is read across, in pieces of 8 x 8 numbers without a swizzle: 128 bytes each, 8 along a row of
// pieces. Again 128 units for 16 rows.
struct MatrixOfPieces {
  uint32_t low;
  __device__ explicit MatrixOfPieces(uint32_t address) : low((address & 0x3ffff) >> 4 | 1024u >> 4 << 16) {}
  __device__ uint64_t at(uint32_t units) const { return uint64_t{128 >> 4} << 32 | (low + units); }
};

#define LK_REGISTERS8(how, i) \
  how(d[i]), how(d[i + 1]), how(d[i + 2]), how(d[i + 3]), how(d[i + 4]), how(d[i + 5]), how(d[i + 6]), how(d[i + 7])
#define LK_REGISTERS16(how, i) LK_REGISTERS8(how, i), LK_REGISTERS8(how, i + 8)
#define LK_REGISTERS32(how, i) LK_REGISTERS16(how, i), LK_REGISTERS16(how, i + 16)
#define LK_REGISTERS48(how, i) LK_REGISTERS32(how, i), LK_REGISTERS16(how, i + 32)
#define LK_REGISTERS56(how, i) LK_REGISTERS48(how, i), LK_REGISTERS8(how, i + 48)
#define LK_REGISTERS64(how, i) LK_REGISTERS48(how, i), LK_REGISTERS16(how, i + 48)
#define LK_REGISTERS72(how, i) LK_REGISTERS64(how, i), LK_REGISTERS8(how, i + 64)
#define LK_REGISTERS80(how, i) LK_REGISTERS64(how, i), LK_REGISTERS16(how, i + 64)
#define LK_REGISTERS88(how, i) LK_REGISTERS80(how, i), LK_REGISTERS8(how, i + 80)
#define LK_REGISTERS96(how, i) LK_REGISTERS80(how, i), LK_REGISTERS16(how, i + 80)
#define LK_REGISTERS104(how, i) LK_REGISTERS96(how, i), LK_REGISTERS8(how, i + 96)
#define LK_REGISTERS128(how, i) LK_REGISTERS96(how, i), LK_REGISTERS32(how, i + 96)
#define LK_OCTET0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LK_OCTET1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define LK_OCTET2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define LK_OCTET3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define LK_OCTET4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define LK_OCTET5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define LK_OCTET6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define LK_OCTET7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define LK_OCTET8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define LK_OCTET9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define LK_OCTET10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define LK_OCTET11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define LK_OCTET12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define LK_OCTET13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define LK_OCTET14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define LK_OCTET15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define LK_NAMES32 LK_OCTET0 ", " LK_OCTET1 ", " LK_OCTET2 ", " LK_OCTET3
#define LK_NAMES48 LK_NAMES32 ", " LK_OCTET4 ", " LK_OCTET5
#define LK_NAMES56 LK_NAMES48 ", " LK_OCTET6
#define LK_NAMES64 LK_NAMES56 ", " LK_OCTET7
#define LK_NAMES72 LK_NAMES64 ", " LK_OCTET8
#define LK_NAMES80 LK_NAMES72 ", " LK_OCTET9
#define LK_NAMES88 LK_NAMES80 ", " LK_OCTET10
#define LK_NAMES96 LK_NAMES88 ", " LK_OCTET11
#define LK_NAMES104 LK_NAMES96 ", " LK_OCTET12
#define LK_NAMES128 LK_NAMES104 ", " LK_OCTET13 ", " LK_OCTET14 ", " LK_OCTET15
// d = a b^T, or with `add` that more; sums over 16. `layouts`: 0 for a matrix whose rows in memory are rows of the
// product's factor, 1 for one whose rows are along the sum. Without `add` what d held is no input of the instruction.
#define LK_MULTIPLY(shape, count, first, second, layouts)                                               \
  if constexpr (add)                                                                                    \
    asm volatile("wgmma.mma_async.sync.aligned." shape " {" LK_NAMES##count "}, " first ", " second     \
                                                                            ", 1, 1, 1, " layouts ";\n" \
                 : LK_REGISTERS##count("+f", 0)                                                         \
                 : "l"(a), "l"(b));                                                                     \
  else                                                                                                  \
    asm volatile("wgmma.mma_async.sync.aligned." shape " {" LK_NAMES##count "}, " first ", " second     \
                                                                            ", 0, 1, 1, " layouts ";\n" \
                 : LK_REGISTERS##count("=f", 0)                                                         \
                 : "l"(a), "l"(b))

// Both by rows, and a by rows and b across.
#define LK_WIDTH(name, cols, count, first, second)                                    \
  template <bool add>                                                                 \
  __device__ static void by_rows(float(&d)[count], uint64_t a, uint64_t b) {          \
    LK_MULTIPLY("m64n" #cols "k16.f32." name "." name, count, first, second, "0, 0"); \
  }                                                                                   \
  template <bool add>                                                                 \
  __device__ static void rows_across(float(&d)[count], uint64_t a, uint64_t b) {      \
    LK_MULTIPLY("m64n" #cols "k16.f32." name "." name, count, first, second, "0, 1"); \
  }
// [64, cols] added to d; a in registers, packed from a result's v[8 s] .. v[8 s + 7]; b across, or by rows.
#define LK_ADD_FROM_REGISTERS(name, cols, count, first, second, across)                                \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #cols "k16.f32." name "." name " {" LK_NAMES##count \
               "}, {" first "}, " second ", 1, 1, 1, " across ";\n"                                    \
               : LK_REGISTERS##count("+f", 0)                                                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define LK_FROM_REGISTERS(name, cols, count, first, second)                                    \
  __device__ static void add_from_registers(float(&d)[count], const uint32_t* a, uint64_t b) { \
    LK_ADD_FROM_REGISTERS(name, cols, count, first, second, "1");                              \
  }
#define LK_ROWS_FROM_REGISTERS(name, cols, count, first, second)                                    \
  __device__ static void add_rows_from_registers(float(&d)[count], const uint32_t* a, uint64_t b) { \
    LK_ADD_FROM_REGISTERS(name, cols, count, first, second, "0");                                   \
  }
// All four, of the widths of tiles that project (product_through.cuh).
#define LK_WIDTH_THROUGH(name, cols, count, first, second, registers, behind) \
  LK_WIDTH(name, cols, count, first, second)                                  \
  LK_FROM_REGISTERS(name, cols, count, registers, behind)                     \
  LK_ROWS_FROM_REGISTERS(name, cols, count, registers, behind)
#define LK_MULTIPLIES(T, name)                                                     \
  template <>                                                                      \
  struct Multiply<T> {                                                             \
    LK_WIDTH(name, 64, 32, "%32", "%33")                                           \
    LK_WIDTH(name, 96, 48, "%48", "%49")                                           \
    LK_WIDTH(name, 192, 96, "%96", "%97")                                          \
    LK_WIDTH(name, 208, 104, "%104", "%105")                                       \
    LK_WIDTH(name, 256, 128, "%128", "%129")                                       \
    LK_WIDTH_THROUGH(name, 112, 56, "%56", "%57", "%56, %57, %58, %59", "%60")     \
    LK_WIDTH_THROUGH(name, 128, 64, "%64", "%65", "%64, %65, %66, %67", "%68")     \
    LK_WIDTH_THROUGH(name, 144, 72, "%72", "%73", "%72, %73, %74, %75", "%76")     \
    LK_WIDTH_THROUGH(name, 160, 80, "%80", "%81", "%80, %81, %82, %83", "%84")     \
    LK_WIDTH_THROUGH(name, 176, 88, "%88", "%89", "%88, %89, %90, %91", "%92")     \
    /* [64, 128] added to d, both across */                                        \
    __device__ static void add_across(float (&d)[64], uint64_t a, uint64_t b) {    \
      constexpr bool add = true;                                                   \
      LK_MULTIPLY("m64n128k16.f32." name "." name, 64, "%64", "%65", "1, 1");      \
    }                                                                              \
    /* [64, 64], both across */                                                    \
    template <bool add>                                                            \
    __device__ static void across(float (&d)[32], uint64_t a, uint64_t b) {        \
      LK_MULTIPLY("m64n64k16.f32." name "." name, 32, "%32", "%33", "1, 1");       \
    }                                                                              \
    LK_FROM_REGISTERS(name, 64, 32, "%32, %33, %34, %35", "%36")                   \
    __device__ static uint32_t pack(float low, float high) {                       \
      uint32_t both = 0;                                                           \
      asm("cvt.rn." name "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low)); \
      return both;                                                                 \
    }                                                                              \
  };

template <class T>
struct Multiply;

__device__ inline float2 unpack_pair(__nv_bfloat162 both) { return __bfloat1622float2(both); }
__device__ inline float2 unpack_pair(__half2 both) { return __half22float2(both); }

LK_MULTIPLIES(__nv_bfloat16, "bf16")
LK_MULTIPLIES(__half, "f16")

#undef LK_MULTIPLIES
#undef LK_WIDTH
#undef LK_WIDTH_THROUGH
#undef LK_FROM_REGISTERS
#undef LK_ROWS_FROM_REGISTERS
#undef LK_ADD_FROM_REGISTERS
#undef LK_MULTIPLY
#undef LK_NAMES32
#undef LK_NAMES48
#undef LK_NAMES56
#undef LK_NAMES64
#undef LK_NAMES72
#undef LK_NAMES80
#undef LK_NAMES88
#undef LK_NAMES96
#undef LK_NAMES104
#undef LK_NAMES128
#undef LK_REGISTERS8
#undef LK_REGISTERS16
#undef LK_REGISTERS32
#undef LK_REGISTERS48
#undef LK_REGISTERS56
#undef LK_REGISTERS64
#undef LK_REGISTERS72
#undef LK_REGISTERS80
#undef LK_REGISTERS88
#undef LK_REGISTERS96
#undef LK_REGISTERS104
#undef LK_REGISTERS128
#undef LK_OCTET0
#undef LK_OCTET1
#undef LK_OCTET2
#undef LK_OCTET3
#undef LK_OCTET4
#undef LK_OCTET5
#undef LK_OCTET6
#undef LK_OCTET7
#undef LK_OCTET8
#undef LK_OCTET9
#undef LK_OCTET10
#undef LK_OCTET11
#undef LK_OCTET12
#undef LK_OCTET13
#undef LK_OCTET14
#undef LK_OCTET15

// Four 8 x 8 matrices of 16-bit numbers, one in each register as a result packs them; lane 8 i + r gives the address of
// row r of matrix i.
__device__ inline void store_matrices(uint32_t address, const uint32_t* v) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]), "r"(v[1]),
               "r"(v[2]), "r"(v[3])
               : "memory");
}

}  // namespace lk::cuda::hopper
