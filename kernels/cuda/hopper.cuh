// What devices of capability 9.0 have beside the others, as PTX (ISA 8.0, "Asynchronous warpgroup level matrix
// instructions", "mbarrier", "cp.async", "cp.reduce.async.bulk"). Only code compiled for sm_90a may call it.
//
// Matrices in shared memory have rows of 128 bytes, 64 numbers of 16 bits, and begin at multiples of 1024 bytes. The 16
// bytes `chunk` of row r lie in place chunk ^ (r % 8) of it (the swizzle of 128 bytes).
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace lk::cuda::hopper {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Barriers in shared memory, in turns of parity 0, 1, 0, ...
__device__ inline void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void barrier_wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Of `threads` threads of the block.
template <int id, int threads>
__device__ inline void barrier_among() {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}

// What threads wrote to memory is seen by matrix instructions and bulk copies that come later.
__device__ inline void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
// Of shared memory alone, which takes far less time.
__device__ inline void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Copies into shared memory by one thread; the barrier's turn ends when everybody has arrived and all bytes are there.
__device__ inline void barrier_arrive_with(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ inline void copy_bulk(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
// Bytes that will be read soon, for the second-level cache; both are multiples of 16.
__device__ inline void expect_soon(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
__device__ inline void expect_soon(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// A box of a matrix; zeros where it has nothing.
__device__ inline void copy_box(void* to, const CUtensorMap& from, int col, int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(to)),
      "l"(&from), "r"(col), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
// A box of a tensor [batch, rows, heads, width]: rows of a head; zeros where there are none.
__device__ inline void copy_rows(void* to, const CUtensorMap& from, int batch, int row, int head, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared_address(to)),
      "l"(&from), "r"(0), "r"(head), "r"(row), "r"(batch), "r"(shared_address(barrier))
      : "memory");
}
// What the second-level cache is to do with lines that a copy reads (as createpolicy.fractional makes them).
enum class Cached : uint64_t {
  usual = 0x1000000000000000,
  first_out = 0x12f0000000000000,
  last_out = 0x14f0000000000000
};

__device__ inline void copy_bulk(void* to, const void* from, int bytes, uint64_t* barrier, Cached cached) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(static_cast<uint64_t>(cached))
      : "memory");
}
// copy_rows of heads of 128 as [batch, heads, halves, rows, 64]: both halves of rows of a head, one after the other.
__device__ inline void copy_halves(void* to, const CUtensorMap& from, int batch, int row, int head, uint64_t* barrier,
                                   Cached cached = Cached::usual) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %2, %4, %5}], [%6], %7;" ::"r"(shared_address(to)),
      "l"(&from), "r"(0), "r"(row), "r"(head), "r"(batch), "r"(shared_address(barrier)),
      "l"(static_cast<uint64_t>(cached))
      : "memory");
}

// Blocks of a cluster: this one's number, a barrier of all their threads, and what makes barriers in shared memory,
// just begun, known to both.
__device__ inline int block_of_cluster() {
  uint32_t rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Four numbers of what lies in the same place of a block of the cluster; they are there after a barrier of all.
__device__ inline float4 load_from_block(const float* here, int block) {
  float4 v;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(shared_address(here)), "r"(block)
      : "memory");
  return v;
}
__device__ inline void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// At the barrier in the same place of a block of the cluster. It says that matrix instructions have read what they
// needed, and orders no writes: at the scope of the cluster each arrival would wait for all memory.
__device__ inline void barrier_arrive_at(uint64_t* barrier, int block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(block)
      : "memory");
}
// copy_box into the same place of both blocks; each has its own barrier told.
__device__ inline void copy_box_to_both(void* to, const CUtensorMap& from, int col, int row, uint64_t* barrier) {
  constexpr uint16_t both = 3;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&from), "r"(col), "r"(row), "r"(shared_address(barrier)), "h"(both)
      : "memory");
}

// Bulk copies from shared memory, by one thread.
__device__ inline void store_box(const CUtensorMap& to, int col, int row, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(col),
               "r"(row), "r"(shared_address(from))
               : "memory");
}
__device__ inline void bulk_store(float* to, uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
__device__ inline void bulk_add(float* to, uint32_t from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// But for the last `later` groups.
template <int later = 0>
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(later) : "memory");
}
__device__ inline void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

__device__ inline uint32_t load_acquire(const uint32_t* at) {
  uint32_t v = 0;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
__device__ inline void add_release(uint32_t* at) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(at) : "memory");
}

// Registers of each thread of the warpgroup from here on.
template <int count>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

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

#define LK_REGISTERS4(how, i) how(d[i]), how(d[i + 1]), how(d[i + 2]), how(d[i + 3])
#define LK_REGISTERS16(how, i) \
  LK_REGISTERS4(how, i), LK_REGISTERS4(how, i + 4), LK_REGISTERS4(how, i + 8), LK_REGISTERS4(how, i + 12)
#define LK_REGISTERS32(how, i) LK_REGISTERS16(how, i), LK_REGISTERS16(how, i + 16)
#define LK_REGISTERS64(how, i) LK_REGISTERS32(how, i), LK_REGISTERS32(how, i + 32)
#define LK_REGISTERS128(how, i) LK_REGISTERS64(how, i), LK_REGISTERS64(how, i + 64)
#define LK_NAMES32                                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21," \
  " %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LK_NAMES64                                                                                        \
  LK_NAMES32                                                                                              \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51," \
  " %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LK_NAMES128                                                                              \
  LK_NAMES64                                                                                     \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"            \
  " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"             \
  " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111," \
  " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
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

#define LK_MULTIPLIES(T, name)                                                                       \
  template <>                                                                                        \
  struct Multiply<T> {                                                                               \
    /* [64, 256], both by rows */                                                                    \
    template <bool add>                                                                              \
    __device__ static void by_rows(float (&d)[128], uint64_t a, uint64_t b) {                        \
      LK_MULTIPLY("m64n256k16.f32." name "." name, 128, "%128", "%129", "0, 0");                     \
    }                                                                                                \
    /* [64, 128], both by rows */                                                                    \
    template <bool add>                                                                              \
    __device__ static void by_rows(float (&d)[64], uint64_t a, uint64_t b) {                         \
      LK_MULTIPLY("m64n128k16.f32." name "." name, 64, "%64", "%65", "0, 0");                        \
    }                                                                                                \
    /* [64, 64], both by rows */                                                                     \
    template <bool add>                                                                              \
    __device__ static void by_rows(float (&d)[32], uint64_t a, uint64_t b) {                         \
      LK_MULTIPLY("m64n64k16.f32." name "." name, 32, "%32", "%33", "0, 0");                         \
    }                                                                                                \
    /* [64, 128] added to d, both across */                                                          \
    __device__ static void add_across(float (&d)[64], uint64_t a, uint64_t b) {                      \
      constexpr bool add = true;                                                                     \
      LK_MULTIPLY("m64n128k16.f32." name "." name, 64, "%64", "%65", "1, 1");                        \
    }                                                                                                \
    /* [64, 64], both across */                                                                      \
    template <bool add>                                                                              \
    __device__ static void across(float (&d)[32], uint64_t a, uint64_t b) {                          \
      LK_MULTIPLY("m64n64k16.f32." name "." name, 32, "%32", "%33", "1, 1");                         \
    }                                                                                                \
    /* [64, 256], a by rows, b across */                                                             \
    template <bool add>                                                                              \
    __device__ static void rows_across(float (&d)[128], uint64_t a, uint64_t b) {                    \
      LK_MULTIPLY("m64n256k16.f32." name "." name, 128, "%128", "%129", "0, 1");                     \
    }                                                                                                \
    /* [64, 128], a by rows, b across */                                                             \
    template <bool add>                                                                              \
    __device__ static void rows_across(float (&d)[64], uint64_t a, uint64_t b) {                     \
      LK_MULTIPLY("m64n128k16.f32." name "." name, 64, "%64", "%65", "0, 1");                        \
    }                                                                                                \
    /* [64, 64], a by rows, b across */                                                              \
    template <bool add>                                                                              \
    __device__ static void rows_across(float (&d)[32], uint64_t a, uint64_t b) {                     \
      LK_MULTIPLY("m64n64k16.f32." name "." name, 32, "%32", "%33", "0, 1");                         \
    }                                                                                                \
    /* [64, 64] added to d; a in registers, packed from a result's v[8 s] .. v[8 s + 7]; b across */ \
    __device__ static void add_from_registers(float (&d)[32], const uint32_t* a, uint64_t b) {       \
      asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name " {" LK_NAMES32       \
                   "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"                                     \
                   : LK_REGISTERS32("+f", 0)                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
    }                                                                                                \
    /* The same, [64, 128] */                                                                        \
    __device__ static void add_from_registers(float (&d)[64], const uint32_t* a, uint64_t b) {       \
      asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." name "." name " {" LK_NAMES64      \
                   "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"                                     \
                   : LK_REGISTERS64("+f", 0)                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
    }                                                                                                \
    __device__ static uint32_t pack(float low, float high) {                                         \
      uint32_t both = 0;                                                                             \
      asm("cvt.rn." name "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));                   \
      return both;                                                                                   \
    }                                                                                                \
  };

template <class T>
struct Multiply;

__device__ inline float2 unpack_pair(__nv_bfloat162 both) { return __bfloat1622float2(both); }
__device__ inline float2 unpack_pair(__half2 both) { return __half22float2(both); }

LK_MULTIPLIES(__nv_bfloat16, "bf16")
LK_MULTIPLIES(__half, "f16")

#undef LK_MULTIPLIES
#undef LK_MULTIPLY
#undef LK_NAMES128
#undef LK_NAMES64
#undef LK_NAMES32
#undef LK_REGISTERS128
#undef LK_REGISTERS64
#undef LK_REGISTERS32
#undef LK_REGISTERS16
#undef LK_REGISTERS4

// Four 8 x 8 matrices of 16-bit numbers, one in each register as a result packs them; lane 8 i + r gives the address of
// row r of matrix i.
__device__ inline void store_matrices(uint32_t address, const uint32_t* v) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]), "r"(v[1]),
               "r"(v[2]), "r"(v[3])
               : "memory");
}

__device__ inline float exp2_fast(float x) {
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace lk::cuda::hopper
