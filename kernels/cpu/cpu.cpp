// The CPU backend: memory, scratch and the operation table.
#include "cpu/cpu.h"

#include <cblas.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "cpu/bf16_gemm.h"
#include "cpu/blas_buffers.h"

struct lk_event {
  std::chrono::steady_clock::time_point reached;
};

namespace lk {

namespace cpu {

namespace {

constexpr size_t alignment = 256;

size_t round_up(size_t bytes) { return (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment; }

}  // namespace

ScratchPool::~ScratchPool() {
  for (const Block& block : free_) std::free(block.data);
}

// The smallest block that is large enough. When there is none, the largest of the others makes room for the new one,
// so that the pool holds no more blocks than were ever in use at once.
ScratchPool::Block ScratchPool::take(size_t bytes) {
  auto best = free_.end(), largest = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    if (block->bytes >= bytes && (best == free_.end() || block->bytes < best->bytes)) best = block;
    if (largest == free_.end() || block->bytes > largest->bytes) largest = block;
  }
  const auto chosen = best != free_.end() ? best : largest;
  if (chosen != free_.end()) {
    const Block block = *chosen;
    free_.erase(chosen);
    if (block.bytes >= bytes) return block;
    std::free(block.data);
  }
  Block block{nullptr, round_up(bytes)};
  block.data = std::aligned_alloc(alignment, block.bytes);
  if (block.data == nullptr) throw std::bad_alloc();
  return block;
}

// Runs in destructors: a block that the list has no room for is freed.
void ScratchPool::give_back(Block block) {
  try {
    free_.push_back(block);
  } catch (const std::bad_alloc&) {
    std::free(block.data);
  }
}

const OpTable& Cpu::ops() const {
  static const OpTable table = [] {
    OpTable ops;
#define LK_CPU_ENTRY(op, params) \
  ops.op = [](Backend& backend, const params& p) { lk::cpu::op(static_cast<Cpu&>(backend), p); };
    LK_FOR_EACH_OP(LK_CPU_ENTRY)
#undef LK_CPU_ENTRY
    return ops;
  }();
  return table;
}

lk_device_info Cpu::info() {
  lk_device_info info{};
  std::strcpy(info.name, "cpu");
  // "OpenBLAS 0.3.21 ... Haswell MAX_THREADS=64": products differ between versions and kernels.
  std::string config = openblas_get_config();
  config = config.substr(0, config.find(' ', config.find(' ') + 1)) + " " + openblas_get_corename();
  if (multiplies_bf16()) config += ", " + bf16_library();
  config.copy(info.libraries, sizeof info.libraries - 1);
  info.memory_total = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  info.memory_free = static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return info;
}

void* Cpu::allocate(int64_t bytes) {
  void* const data = host_allocate(bytes);
  if (data == nullptr) return nullptr;
  allocated_[data] = bytes;
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  return data;
}

void Cpu::release(void* data) {
  if (const auto it = allocated_.find(data); it != allocated_.end()) {
    held_ -= it->second;
    allocated_.erase(it);
  }
  std::free(data);
}

void* Cpu::host_allocate(int64_t bytes) {
  if (bytes > PTRDIFF_MAX - static_cast<int64_t>(alignment)) return nullptr;
  return std::aligned_alloc(alignment, round_up(static_cast<size_t>(bytes)));
}

void Cpu::host_release(void* data) { std::free(data); }

void Cpu::copy_async(lk_queue, void* dst, const void* src, int64_t bytes) { upload(dst, src, bytes); }

void Cpu::upload(void* dst, const void* src, int64_t bytes) { std::memcpy(dst, src, static_cast<size_t>(bytes)); }

void Cpu::download(void* dst, const void* src, int64_t bytes) { std::memcpy(dst, src, static_cast<size_t>(bytes)); }

void Cpu::pace(lk_queue, int64_t nanoseconds) {
  std::this_thread::sleep_until(begun_ + std::chrono::nanoseconds(nanoseconds));
}

lk_event* Cpu::event_create() { return new lk_event; }

void Cpu::event_destroy(lk_event* event) { delete event; }

void Cpu::event_record(lk_event* event, lk_queue) { event->reached = std::chrono::steady_clock::now(); }

float Cpu::event_elapsed(lk_event* start, lk_event* end) {
  return std::chrono::duration<float, std::milli>(end->reached - start->reached).count();
}

namespace {

[[noreturn]] void no_graphs(const char* what) {
  throw Error(LK_E_UNSUPPORTED, std::string(what) + ": the cpu backend records no graphs");
}

}  // namespace

void Cpu::capture_begin() { no_graphs("capture_begin"); }

lk_graph* Cpu::capture_end() { no_graphs("capture_end"); }

void Cpu::graph_launch(lk_graph*) { no_graphs("graph_launch"); }

bool Cpu::if_finite_begin(const float* value) { return std::isfinite(*value); }

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const lk_context_params& params) {
  if (params.threads < 0) {
    throw Error(LK_E_INVALID, "context_create: threads: expected >= 0, found " + std::to_string(params.threads));
  }
  // OpenMP owns every thread: one pool, and products that do not depend on how OpenBLAS was built.
  openblas_set_num_threads(1);
  const int32_t threads = params.threads > 0 ? params.threads : omp_get_num_procs();
  return std::make_unique<cpu::Cpu>(cpu::reserve_blas_buffers(threads));
}

}  // namespace lk
