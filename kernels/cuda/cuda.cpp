// The CUDA backend: device, memory, streams, recorded graphs and the operation table.
#include "cuda/cuda.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "backend_module.h"
#include "cuda/as_card.h"
#include "cuda/dnn.h"
#include "cuda/gemm.h"
#include "cuda/kernel_name.h"
#include "cuda/pointwise_arguments.h"
#include "cuda/runtime_kernels.h"

namespace lk {

namespace cuda {

void check(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that is not sticky must not show up again in a later call
  throw Error(status == cudaErrorMemoryAllocation ? LK_E_MEMORY : LK_E_DEVICE,
              what + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

namespace {

constexpr int64_t alignment = 256;

int64_t round_up(int64_t bytes) { return ceil_div(std::max<int64_t>(bytes, 1), alignment) * alignment; }

std::string version_text(int version) {  // 13000 -> 13.0
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Why there is no device to use, and what to do about it.
[[noreturn]] void no_device(cudaError_t status) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cudaGetLastError();
  if (driver == 0)
    throw Error(LK_E_NO_DRIVER, "there is no NVIDIA driver on this machine (libcuda.so.1). Install one for CUDA " +
                                    version_text(runtime) + " or newer");
  if (status == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000)
    throw Error(LK_E_OLD_DRIVER, "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) +
                                     ", expected CUDA " + version_text(runtime) + " or newer. Update the driver");
  if (status == cudaErrorNoDevice)
    throw Error(LK_E_DEVICE, "the NVIDIA driver (CUDA " + version_text(driver) +
                                 ") sees no GPU. Check nvidia-smi and CUDA_VISIBLE_DEVICES");
  throw Error(LK_E_DEVICE, std::string("the NVIDIA driver does not answer: ") + cudaGetErrorString(status));
}

// Runs an operation; what it throws names it.
template <class Body>
void named(const char* op, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    throw Error(error.status(), std::string(op) + ": " + error.what());
  }
}

void open_device(int32_t index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) no_device(status);
  if (index < 0 || index >= count)
    throw Error(LK_E_INVALID, "context_create: device: expected 0 to " + std::to_string(count - 1) + ", found " +
                                  std::to_string(index));
  check(cudaSetDevice(index), "cudaSetDevice " + std::to_string(index));
  if (const std::string missing = missing_code(); !missing.empty()) throw Error(LK_E_DEVICE, missing);
}

}  // namespace

void Workspace::begin() {
  if (kept_) return;
  used_[end_] = 0;
  if (paired_) return;
  if (!spilled_.empty()) {
    if (owner->capturing())
      throw Error(LK_E_MEMORY,
                  "the workspace is in pieces, which cannot become one while recording; run an operation more before "
                  "it, or lend a workspace (lk_set_workspace)");
    const int64_t wanted = reached_[0] + reached_[1];
    release();
    base_ = static_cast<std::byte*>(owner->allocate(wanted));
    if (base_ == nullptr) throw Error(LK_E_MEMORY, "no memory for a workspace of " + std::to_string(wanted) + " bytes");
    capacity_ = wanted;
  }
  reached_[0] = reached_[1] = 0;
}

void* Workspace::take(int64_t bytes) {
  const int64_t offset = used_[end_];
  used_[end_] += round_up(bytes);
  reached_[end_] = std::max(reached_[end_], used_[end_]);
  const int64_t wanted = reached_[0] + reached_[1];
  if (measuring_) {
    most_ = std::max(most_, wanted);
    return reinterpret_cast<void*>(alignment);
  }
  if (wanted <= capacity_) return base_ + (end_ == 0 ? offset : capacity_ / alignment * alignment - used_[1]);
  if (lent_)
    throw Error(LK_E_MEMORY, "the workspace has " + std::to_string(capacity_) + " bytes, expected at least " +
                                 std::to_string(wanted) + " (lk_measure_begin and _end say how many)");
  if (owner->capturing())
    throw Error(LK_E_MEMORY, "a larger workspace cannot be had while recording; run the operation once before");
  void* const block = owner->allocate(bytes);
  if (block == nullptr) throw Error(LK_E_MEMORY, "no memory for a workspace of " + std::to_string(bytes) + " bytes");
  spilled_.push_back(block);
  return block;
}

void Workspace::lend(void* data, int64_t bytes) {
  begin();
  if (!lent_) release();
  lent_ = data != nullptr;
  base_ = static_cast<std::byte*>(data);
  capacity_ = bytes;
}

void Workspace::fork(int32_t branches) {
  begin();
  (branches == 2 ? paired_ : kept_) = true;
}

void Workspace::join() {
  kept_ = paired_ = false;
  end_ = 0;
  begin();
}

void Workspace::measure(bool on) {
  measuring_ = on;
  if (on) most_ = 0;
  for (int end = 0; end < 2; ++end) used_[end] = reached_[end] = 0;
}

void Workspace::release() {
  for (void* block : spilled_) owner->release(block);
  spilled_.clear();
  if (base_ != nullptr && !lent_) owner->release(base_);
  base_ = nullptr;
  capacity_ = 0;
}

Cuda::Cuda(const lk_context_params& params)
    : index_(params.device),
      fast_(params.fast != 0),
      tuning_cache_(params.tuning_cache != nullptr ? params.tuning_cache : "") {
  require_usable_cudnn();
  open_device(params.device);
  check(cudaGetDeviceProperties(&device_, params.device), "device properties");
  runtime_kernels_ = std::make_unique<RuntimeKernels>(capability());
  as_card(device_);
  compiled_for_ = compiled_for();
  check(cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking), "compute stream");
  stream_ = own_;
  check(cudaStreamCreateWithFlags(&transfer_, cudaStreamNonBlocking), "transfer stream");
  check(cudaStreamCreateWithFlags(&return_, cudaStreamNonBlocking), "return stream");
  check(cudaStreamCreateWithFlags(&body_, cudaStreamNonBlocking), "condition stream");
  workspace_.owner = this;
  gemm_ = std::make_unique<Gemm>(*this);
  dnn_ = std::make_unique<Dnn>(*this);
  const size_t bytes = size_t{LK_MAX_BRANCHES} * pointwise_arrivals * sizeof(uint32_t);
  check(cudaMalloc(&arrivals_, bytes), "counters");
  check(cudaMemsetAsync(arrivals_, 0, bytes, stream_), "counters");
  check(cudaMalloc(&begun_, (LK_RETURN + 1) * sizeof *begun_), "time of a copy");
}

// Errors are not reported: the device may have failed, and there is nobody to tell.
Cuda::~Cuda() {
  int before = index_;
  cudaGetDevice(&before);
  cudaSetDevice(index_);
  for (cudaStream_t stream : {own_, stream_, transfer_, return_}) cudaStreamSynchronize(stream);
  gemm_.reset();
  dnn_.reset();
  runtime_kernels_.reset();
  workspace_.release();
  cudaFree(arrivals_);
  cudaFree(begun_);
  for (cudaStream_t stream : {own_, transfer_, return_, body_}) cudaStreamDestroy(stream);
  leave(before);
}

int32_t Cuda::enter() {
  int before = index_;
  check(cudaGetDevice(&before), "cudaGetDevice");
  if (before != index_) check(cudaSetDevice(index_), "cudaSetDevice");
  return before;
}

void Cuda::leave(int32_t before) {
  if (before != index_) cudaSetDevice(before);
}

const OpTable& Cuda::ops() const {
  static const OpTable table = [] {
    OpTable ops;
#define LK_CUDA_ENTRY(op, params)                  \
  ops.op = [](Backend& backend, const params& p) { \
    named(#op, [&] {                               \
      Cuda& cuda = static_cast<Cuda&>(backend);    \
      cuda.begin_operation();                      \
      lk::cuda::op(cuda, p);                       \
    });                                            \
  };
    LK_FOR_EACH_OP(LK_CUDA_ENTRY)
#undef LK_CUDA_ENTRY
    return ops;
  }();
  return table;
}

lk_device_info Cuda::info() {
  lk_device_info info{};
  std::string_view(device_.name).copy(info.name, sizeof info.name - 1);
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "driver version");
  const std::string libraries =
      "driver CUDA " + version_text(driver) + ", " + gemm_->version() + ", " + dnn_->version();
  libraries.copy(info.libraries, sizeof info.libraries - 1);
  info.compute_capability = capability();
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "free memory");
  info.memory_free = static_cast<int64_t>(free);
  info.memory_total = static_cast<int64_t>(total);
  return info;
}

void* Cuda::allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaMalloc of " + std::to_string(bytes) + " bytes");
  allocated_[data] = bytes;
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  return data;
}

void Cuda::release(void* data) {
  if (const auto it = allocated_.find(data); it != allocated_.end()) {
    held_ -= it->second;
    allocated_.erase(it);
  }
  cudaFree(data);
}

// In a stream of the context: a plain cudaMemcpy from pageable memory returns before the device has everything, and the
// context's streams do not wait for the stream that it uses.
void Cuda::upload(void* dst, const void* src, int64_t bytes) {
  synchronize();
  check(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, transfer_), "upload");
  check(cudaStreamSynchronize(transfer_), "upload");
}

void Cuda::download(void* dst, const void* src, int64_t bytes) {
  synchronize();
  check(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, transfer_), "download");
  check(cudaStreamSynchronize(transfer_), "download");
}

void Cuda::synchronize() {
  for (cudaStream_t stream : {stream_, transfer_, return_}) check(cudaStreamSynchronize(stream), "the device");
}

void Cuda::use_stream(void* stream) {
  if (capturing_) throw Error(LK_E_INVALID, "context_use_stream: while the context is recording");
  const cudaStream_t next = stream != nullptr ? static_cast<cudaStream_t>(stream) : own_;
  if (next == stream_) return;
  cudaStreamCaptureStatus before = cudaStreamCaptureStatusNone, after = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_, &before), "the stream before");
  check(cudaStreamIsCapturing(next, &after), "context_use_stream");
  if (before == cudaStreamCaptureStatusNone && after == cudaStreamCaptureStatusNone) {
    cudaEvent_t reached = nullptr;
    check(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming), "event");
    const cudaError_t recorded = cudaEventRecord(reached, stream_), held = cudaStreamWaitEvent(next, reached, 0);
    cudaEventDestroy(reached);
    check(recorded, "context_use_stream");
    check(held, "context_use_stream");
  }
  stream_ = next;
}

void* Cuda::host_allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaHostAlloc of " + std::to_string(bytes) + " bytes");
  return data;
}

void Cuda::host_release(void* data) { cudaFreeHost(data); }

void Cuda::copy_async(lk_queue where, void* dst, const void* src, int64_t bytes) {
  check(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), cudaMemcpyDefault, queue(where)), "copy");
}

void Cuda::pace_begin(lk_queue which) {
  paced_ = true;
  note_time(queue(which), begun(which));
}

void Cuda::pace(lk_queue which, int64_t nanoseconds) { wait_since(queue(which), begun(which), nanoseconds); }

lk_event* Cuda::event_create() {
  auto event = std::make_unique<lk_event>();
  check(cudaEventCreate(&event->event), "event");
  return event.release();
}

void Cuda::event_destroy(lk_event* event) {
  cudaEventDestroy(event->event);
  delete event;
}

void Cuda::event_record(lk_event* event, lk_queue where) {
  check(cudaEventRecord(event->event, queue(where)), "event");
}

void Cuda::event_wait(lk_event* event, lk_queue where) {
  check(cudaStreamWaitEvent(queue(where), event->event, 0), "event");
}

void Cuda::event_finish(lk_event* event) { check(cudaEventSynchronize(event->event), "the device"); }

float Cuda::event_elapsed(lk_event* start, lk_event* end) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start->event, end->event), "event");
  return milliseconds;
}

void Cuda::capture_begin() {
  workspace_.begin();  // what earlier operations took in pieces becomes one block, which a recording may not allocate
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording");
  capturing_ = true;
}

lk_graph* Cuda::capture_end() {
  if (branches_.forked()) join();
  if (conditional_) if_finite_end();
  capturing_ = false;
  cudaGraph_t recorded = nullptr;
  check(cudaStreamEndCapture(stream_, &recorded), "recording");
  auto graph = std::make_unique<lk_graph>();
  const unsigned flags = paced_ ? cudaGraphInstantiateFlagUseNodePriority : 0;  // of the kernels that wait
  const cudaError_t status = cudaGraphInstantiate(&graph->executable, recorded, flags);
  cudaGraphDestroy(recorded);
  check(status, "making a graph of what was recorded");
  check(cudaGraphUpload(graph->executable, stream_), "uploading a graph");
  return graph.release();
}

bool Cuda::capturing() const {
  if (capturing_ || stream_ == own_) return capturing_;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_, &status), "the stream that was lent");
  return status != cudaStreamCaptureStatusNone;
}

void Cuda::graph_launch(lk_graph* graph) { check(cudaGraphLaunch(graph->executable, stream_), "graph launch"); }

void Cuda::graph_destroy(lk_graph* graph) {
  cudaGraphExecDestroy(graph->executable);
  delete graph;
}

bool Cuda::if_finite_begin(const float* value) {
  if (!capturing_) {
    float now = 0;
    download(&now, value, sizeof now);
    return std::isfinite(now);
  }
  const auto state = [&](cudaGraph_t& graph, const cudaGraphNode_t*& before, const cudaGraphEdgeData*& edges,
                         size_t& count) {
    cudaStreamCaptureStatus status{};
    check(cudaStreamGetCaptureInfo(stream_, &status, nullptr, &graph, &before, &edges, &count), "recording");
  };
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* before = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  state(graph, before, edges, count);
  cudaGraphConditionalHandle handle{};
  check(cudaGraphConditionalHandleCreate(&handle, graph, 0, cudaGraphCondAssignDefault), "condition");
  set_condition(stream_, handle, value);
  state(graph, before, edges, count);
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeIf;
  params.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  check(cudaGraphAddNode(&node, graph, before, edges, count, &params), "condition");
  check(cudaStreamUpdateCaptureDependencies(stream_, &node, nullptr, 1, cudaStreamSetCaptureDependencies), "condition");
  check(cudaStreamBeginCaptureToGraph(body_, params.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                      cudaStreamCaptureModeThreadLocal),
        "condition");
  std::swap(stream_, body_);
  conditional_ = true;
  return true;
}

void Cuda::if_finite_end() {
  if (!conditional_) return;
  conditional_ = false;
  cudaGraph_t body = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream_, &body);
  std::swap(stream_, body_);
  check(status, "condition");
}

void Cuda::fork(int32_t branches) {
  workspace_.fork(branches);
  if (!measuring_) branches_.fork(stream_, branches);
}

void Cuda::branch(int32_t branch) {
  workspace_.enter(branch);
  if (!measuring_) stream_ = branches_.enter(branch);
}

void Cuda::join() {
  if (!measuring_) stream_ = branches_.join();
  workspace_.join();
}

uint32_t* Cuda::arrivals() { return arrivals_ + int64_t{branches_.current()} * pointwise_arrivals; }

void Cuda::measure_begin() {
  measuring_ = true;
  workspace_.measure(true);
}

int64_t Cuda::measure_end() {
  measuring_ = false;
  workspace_.measure(false);
  return workspace_.measured();
}

void Cuda::choose_by_time(bool on) { gemm_->choose_by_time(on); }

std::string Cuda::choices() { return gemm_->choices(); }

bool Cuda::take_choices(const char* lines) { return gemm_->take_choices(lines); }

void Cuda::set_workspace(void* data, int64_t bytes) {
  synchronize();
  workspace_.lend(data, bytes);
}

namespace {

void allow_shared(const void* kernel, size_t bytes) {
  constexpr size_t usual = size_t{48} * 1024;  // more has to be asked for
  if (bytes > usual)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          "shared memory of a kernel");
}

cudaLaunchAttribute clusters_of(dim3 size) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {size.x, size.y, size.z};
  return attribute;
}

}  // namespace

int64_t Cuda::clusters_at_once(const void* kernel, dim3 cluster, dim3 block, size_t shared) const {
  if (!has_clusters()) return 0;
  const auto [known, fresh] = clusters_.try_emplace({kernel, cluster.x, cluster.y, shared}, 0);
  if (!fresh) return known->second;
  allow_shared(kernel, shared);
  cudaLaunchAttribute attribute = clusters_of(cluster);
  const auto processors = static_cast<unsigned>(device_.multiProcessorCount);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(processors / cluster.x * cluster.x, cluster.y, cluster.z);
  config.blockDim = block, config.dynamicSmemBytes = shared, config.attrs = &attribute, config.numAttrs = 1;
  int count = 0;
  if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess) return known->second = count;
  cudaGetLastError();  // a part of a device may have no clusters
  return 0;
}

void Cuda::launch_kernel(const void* kernel, dim3 grid, dim3 block, size_t shared, void** arguments, Together how) {
  if (measuring_) return;
  if (shared > device_.sharedMemPerBlockOptin)
    throw Error(LK_E_LIBRARY, "a kernel wants " + std::to_string(shared) +
                                  " bytes of shared memory, of which a block has " +
                                  std::to_string(device_.sharedMemPerBlockOptin) + " here");
  allow_shared(kernel, shared);
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (how.all) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  } else if (compiled_for_ >= 90) {  // await_previous.cuh
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (how.cluster > 1) attributes[count++] = clusters_of(dim3(1, how.cluster));
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared, config.stream = stream_;
  config.attrs = attributes;
  config.numAttrs = count;
  const cudaError_t status = cudaLaunchKernelExC(&config, kernel, arguments);
  if (status == cudaSuccess) {
    if (notes != nullptr) notes->ran.push_back(kernel_name(kernel));
    return;
  }
  check(status, "kernel " + kernel_name(kernel) + " with grid " + std::to_string(grid.x) + "x" +
                    std::to_string(grid.y) + "x" + std::to_string(grid.z) + ", block " + std::to_string(block.x) + "x" +
                    std::to_string(block.y) + ", " + std::to_string(shared) + " bytes of shared memory");
}

void Cuda::fill_zero(void* data, int64_t bytes) {
  if (!measuring_) check(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream_), "zero fill");
}

}  // namespace cuda

}  // namespace lk

extern "C" LK_API const lk::BackendModule lk_backend_module;
const lk::BackendModule lk_backend_module{
    LK_BACKEND_INTERFACE,
    [](const lk_context_params& params) -> std::unique_ptr<lk::Backend> {
      return std::make_unique<lk::cuda::Cuda>(params);
    },
};
