// The CUDA backend's object: one device, its streams, its workspace and the declarations of its operations.
//
// Rules for an operation in kernels/cuda/<op>.cu:
//   - it only enqueues on stream(): no synchronisation, no allocation, nothing that cannot be captured;
//   - kernels go through launch(), memory for the duration of the operation through scratch(); both know measuring(),
//     in which nothing may be launched and no address may be read. Code that calls a library itself asks measuring();
//   - sums have an order that does not depend on timing, unless fast() allows otherwise;
//   - shapes and types were checked before (check.h); sizes are int64_t up to the kernel's own index arithmetic.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "backend.h"
#include "cuda/branches.h"

struct lk_event {
  cudaEvent_t event;
};

struct lk_graph {
  cudaGraphExec_t executable;
};

namespace lk::cuda {

// Throws LK_E_MEMORY or LK_E_DEVICE with `what` and the runtime's text.
void check(cudaError_t status, const std::string& what);

// Memory for the duration of one operation: a bump allocator over one block, which the host lends (lk_set_workspace)
// or which grows between operations.
class Workspace {
 public:
  void begin();               // of an operation: everything is free again, unless it is kept
  void* take(int64_t bytes);  // 256-byte aligned
  void lend(void* data, int64_t bytes);
  // Operations run side by side until the join: those of two branches take from one end each, and are one after the
  // other there; of more than two, what they take stays taken.
  void fork(int32_t branches);
  void enter(int32_t branch) { end_ = paired_ ? branch : 0; }
  void join();
  void measure(bool on);
  int64_t measured() const { return most_; }
  void release();  // the own block

  // Where its own memory comes from; set by the backend.
  class Cuda* owner = nullptr;

 private:
  std::byte* base_ = nullptr;
  // From the lower and the upper end: what the operation has, and the most that one had since all was free.
  int64_t used_[2] = {0, 0}, reached_[2] = {0, 0};
  int64_t capacity_ = 0, most_ = 0;
  int end_ = 0;
  bool lent_ = false, measuring_ = false, kept_ = false, paired_ = false;
  std::vector<void*> spilled_;  // blocks of the running operation that did not fit; replaced by a larger base
};

class Gemm;
class Dnn;
class RuntimeKernels;

// Which blocks of a kernel run at the same time for certain.
struct Together {
  bool all = false;
  unsigned cluster = 1;  // so many neighbours along y
};

class Cuda final : public Backend {
 public:
  explicit Cuda(const lk_context_params& params);
  ~Cuda() override;
  int32_t enter() override;
  void leave(int32_t before) override;
  const char* name() const override { return "cuda"; }
  int32_t threads() const override { return 1; }
  const OpTable& ops() const override;
  lk_device_info info() override;
  void* allocate(int64_t bytes) override;
  void release(void* data) override;
  int64_t memory_peak() const override { return peak_; }
  void upload(void* dst, const void* src, int64_t bytes) override;
  void download(void* dst, const void* src, int64_t bytes) override;
  void synchronize() override;
  void* host_allocate(int64_t bytes) override;
  void host_release(void* data) override;
  void copy_async(lk_queue queue, void* dst, const void* src, int64_t bytes) override;
  void pace_begin(lk_queue queue) override;
  void pace(lk_queue queue, int64_t nanoseconds) override;
  lk_event* event_create() override;
  void event_destroy(lk_event* event) override;
  void event_record(lk_event* event, lk_queue queue) override;
  void event_wait(lk_event* event, lk_queue queue) override;
  void event_finish(lk_event* event) override;
  float event_elapsed(lk_event* start, lk_event* end) override;
  void capture_begin() override;
  lk_graph* capture_end() override;
  void graph_launch(lk_graph* graph) override;
  void graph_destroy(lk_graph* graph) override;
  bool if_finite_begin(const float* value) override;
  void if_finite_end() override;
  void fork(int32_t branches) override;
  void branch(int32_t branch) override;
  void join() override;
  void measure_begin() override;
  int64_t measure_end() override;
  bool capturing() const override;  // by this context, or by whoever lent the stream
  bool runs_while_measuring() const override { return true; }
  void set_workspace(void* data, int64_t bytes) override;
  bool has_streams() const override { return true; }
  void* current_stream() const override { return stream_; }
  void use_stream(void* stream) override;
  void choose_by_time(bool on) override;
  std::string choices() override;
  bool take_choices(const char* lines) override;

  // For operations.
  cudaStream_t stream() const { return stream_; }
  const cudaDeviceProp& device() const { return device_; }
  int capability() const { return device_.major * 10 + device_.minor; }  // 90 = 9.0
  bool has_clusters() const { return compiled_for_ >= 90; }
  bool measuring() const { return measuring_; }
  bool fast() const { return fast_; }
  // pointwise_arrivals counters, 0 between operations, that no operation of another branch uses.
  uint32_t* arrivals();
  const std::string& tuning_cache() const { return tuning_cache_; }
  Gemm& gemm() { return *gemm_; }
  Dnn& dnn() { return *dnn_; }
  RuntimeKernels& runtime_kernels() { return *runtime_kernels_; }
  void begin_operation() { workspace_.begin(); }
  // `count` uninitialised elements until the operation returns, 256-byte aligned.
  template <class T>
  T* scratch(int64_t count) {
    return static_cast<T*>(workspace_.take(count * static_cast<int64_t>(sizeof(T))));
  }
  // Enqueues a kernel, which begins with await_previous(), and checks the launch; does nothing while measuring.
  template <class... P>
  void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, std::type_identity_t<P>... arguments) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    launch_kernel(reinterpret_cast<const void*>(kernel), grid, block, shared, pointers);
  }
  // The same, for blocks that wait for each other: all run at once, or it is an error.
  template <class... P>
  void launch_together(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                       std::type_identity_t<P>... arguments) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    launch_kernel(reinterpret_cast<const void*>(kernel), grid, block, shared, pointers, {.all = true});
  }
  // The same, for blocks with one x that are a cluster, up to 8 (capability 9.0 on).
  template <class... P>
  void launch_columns(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                      std::type_identity_t<P>... arguments) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    launch_kernel(reinterpret_cast<const void*>(kernel), grid, block, shared, pointers, {.cluster = grid.y});
  }
  // So many clusters of this size run at once, perhaps none.
  int64_t clusters_at_once(const void* kernel, dim3 cluster, dim3 block, size_t shared) const;
  // For a kernel that was compiled at run time.
  void launch_loaded(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments) {
    launch_kernel(reinterpret_cast<const void*>(kernel), grid, block, 0, arguments);
  }
  void fill_zero(void* data, int64_t bytes);

 private:
  void launch_kernel(const void* kernel, dim3 grid, dim3 block, size_t shared, void** arguments, Together how = {});
  cudaStream_t queue(lk_queue which) const {
    return which == LK_COMPUTE ? stream_ : which == LK_TRANSFER ? transfer_ : return_;
  }
  uint64_t* begun(lk_queue queue) const { return capturing_ ? &begun_[queue].recorded : &begun_[queue].called; }

  int32_t index_;
  int compiled_for_ = 0;
  cudaDeviceProp device_{};
  cudaStream_t stream_ = nullptr, own_ = nullptr, transfer_ = nullptr, return_ = nullptr;
  cudaStream_t body_ = nullptr;  // records the body of a condition
  bool capturing_ = false, measuring_ = false, conditional_ = false, fast_;
  std::string tuning_cache_;
  Workspace workspace_;
  Branches branches_;
  uint32_t* arrivals_ = nullptr;
  // On the device, by queue: when the copy began that is paced; one that is called may be on its way beside a recorded
  // one.
  struct Begun {
    uint64_t called, recorded;
  }* begun_ = nullptr;
  bool paced_ = false;                                                                       // there was one
  mutable std::map<std::tuple<const void*, unsigned, unsigned, size_t>, int64_t> clusters_;  // that run at once
  std::map<void*, int64_t> allocated_;
  int64_t held_ = 0, peak_ = 0;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Dnn> dnn_;
  std::unique_ptr<RuntimeKernels> runtime_kernels_;
};

// Writes the device's time to *begun, and waits until it is so many nanoseconds later.
void note_time(cudaStream_t stream, uint64_t* begun);
void wait_since(cudaStream_t stream, const uint64_t* begun, int64_t nanoseconds);
// Sets `handle` to whether value[0] is finite, when the graph reaches it.
void set_condition(cudaStream_t stream, cudaGraphConditionalHandle handle, const float* value);
// Empty, or why this build's kernels cannot run on the current device.
std::string missing_code();
// The capability that the code was compiled for which runs on the current device: at most the device's.
int compiled_for();

inline int64_t numel(const lk_tensor& t) { return lk_numel(&t); }
inline bool present(const lk_tensor& t) { return t.data != nullptr; }
inline int64_t bytes_of(const lk_tensor& t) { return lk_tensor_bytes(&t); }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#define LK_CUDA_OP(op, params) void op(Cuda& cuda, const params& p);
LK_FOR_EACH_OP(LK_CUDA_OP)
#undef LK_CUDA_OP

}  // namespace lk::cuda
