// What devices of capability 9.0 have beside the others, as PTX (ISA 8.0, "mbarrier", "cp.async",
// "cp.reduce.async.bulk"; matrix_instructions.cuh has the rest). Only code compiled for sm_90a may call it.
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

// What a kernel keeps in its dynamic shared memory, of which 1023 bytes are spare: where matrices may begin. By an
// offset, from which the compiler still sees what memory this is; of an address that was a number it does not.
template <class Memory>
__device__ inline Memory& aligned(unsigned char* memory) {
  return *reinterpret_cast<Memory*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
}

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
template <int id>
__device__ inline void barrier_among(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "r"(threads) : "memory");
}

// Where a thread is in a ring of stages, each with barriers.
template <int stages>
struct Ring {
  int stage = 0, parity = 0;
  __device__ void next() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

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
// One that will be copied soon, for the second-level cache.
__device__ inline void expect_box_soon(const CUtensorMap& from, int col, int row) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(&from), "r"(col), "r"(row)
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
// Between the two all threads of a cluster have come to the first, and what they told fence_barriers is known; nothing
// else is ordered.
__device__ inline void cluster_begins() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void cluster_has_begun() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// Bytes of shared memory, multiples of 16, into another block of the cluster, of which its barrier is told: `to` and
// `barrier` are places of this block.
__device__ inline void copy_to_block(void* to, int block, const void* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "{\n"
      ".reg .b32 remote, told;\n"
      "mapa.shared::cluster.u32 remote, %0, %4;\n"
      "mapa.shared::cluster.u32 told, %3, %4;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [remote], [%1], %2, [told];\n"
      "}\n" ::"r"(shared_address(to)),
      "r"(shared_address(from)), "r"(bytes), "r"(shared_address(barrier)), "r"(block)
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

__device__ inline void raise_release(uint32_t* at, uint32_t v) {  // to at least v
  asm volatile("red.release.gpu.global.max.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
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

}  // namespace lk::cuda::hopper
