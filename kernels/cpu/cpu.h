// The CPU backend's object: its threads, its scratch memory and the declarations of its operations.
#pragma once

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "backend.h"

namespace lk::cpu {

// Blocks of scratch memory that go back to the pool and are used again, so that a training step does not pay for
// fresh pages. Used by one thread; kernels take their scratch before they start threads.
class ScratchPool {
 public:
  ScratchPool() = default;
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;
  ~ScratchPool();
  struct Block {
    void* data;
    size_t bytes;
  };
  Block take(size_t bytes);  // throws std::bad_alloc
  void give_back(Block block);

 private:
  std::vector<Block> free_;
};

class Cpu final : public Backend {
 public:
  explicit Cpu(int32_t threads) : threads_(threads) {}
  const char* name() const override { return "cpu"; }
  int32_t threads() const override { return threads_; }
  const OpTable& ops() const override;
  lk_device_info info() override;
  void* allocate(int64_t bytes) override;
  void release(void* data) override;
  int64_t memory_peak() const override { return peak_; }
  void upload(void* dst, const void* src, int64_t bytes) override;
  void download(void* dst, const void* src, int64_t bytes) override;
  void* host_allocate(int64_t bytes) override;
  void host_release(void* data) override;
  void copy_async(lk_queue queue, void* dst, const void* src, int64_t bytes) override;
  void pace_begin(lk_queue) override { begun_ = std::chrono::steady_clock::now(); }
  void pace(lk_queue queue, int64_t nanoseconds) override;
  lk_event* event_create() override;
  void event_destroy(lk_event* event) override;
  void event_record(lk_event* event, lk_queue queue) override;
  float event_elapsed(lk_event* start, lk_event* end) override;
  void capture_begin() override;
  lk_graph* capture_end() override;
  void graph_launch(lk_graph* graph) override;
  void graph_destroy(lk_graph*) override {}
  bool if_finite_begin(const float* value) override;
  ScratchPool& scratch() { return scratch_; }

 private:
  int32_t threads_;
  ScratchPool scratch_;
  std::map<void*, int64_t> allocated_;
  int64_t held_ = 0, peak_ = 0;
  std::chrono::steady_clock::time_point begun_;
};

// `count` uninitialised elements from the pool.
template <class T>
class Scratch {
 public:
  Scratch() = default;
  Scratch(Cpu& cpu, int64_t count) { take(cpu, count); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (pool_ != nullptr) pool_->give_back(block_);
  }
  void take(Cpu& cpu, int64_t count) {
    block_ = cpu.scratch().take(static_cast<size_t>(count) * sizeof(T));
    pool_ = &cpu.scratch();
  }
  void swap(Scratch& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(block_, other.block_);
  }
  T* data() const { return static_cast<T*>(block_.data); }

 private:
  ScratchPool* pool_ = nullptr;
  ScratchPool::Block block_{nullptr, 0};
};

// Below this much work (in elements touched) a loop stays on the calling thread.
constexpr int64_t parallel_grain = 16384;

// Calls body(begin, end) on consecutive parts of [0, items), one part per thread; `work` is the number of elements
// that one item touches. The parts depend on items, work and the number of threads only.
template <class Body>
void parallel_for(const Cpu& cpu, int64_t items, int64_t work, const Body& body) {
  const int64_t useful = items * work / parallel_grain;
  const int64_t parts = std::min<int64_t>({cpu.threads(), items, useful});
  if (parts <= 1) {
    if (items > 0) body(int64_t{0}, items);
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (int64_t part = 0; part < parts; ++part) body(items * part / parts, items * (part + 1) / parts);
}

// Calls body(task, slot) for uneven tasks whose results do not depend on each other; slot < cpu.threads() numbers the
// thread, for its own scratch memory.
template <class Body>
void parallel_tasks(const Cpu& cpu, int64_t tasks, const Body& body) {
  const int64_t parts = std::min<int64_t>(cpu.threads(), tasks);
  if (parts <= 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task, int64_t{0});
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(dynamic, 1)
  for (int64_t task = 0; task < tasks; ++task) body(task, static_cast<int64_t>(omp_get_thread_num()));
}

#define LK_CPU_OP(op, params) void op(Cpu& cpu, const params& p);
LK_FOR_EACH_OP(LK_CPU_OP)
#undef LK_CPU_OP

}  // namespace lk::cpu
