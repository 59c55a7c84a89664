// NCCL: a module of its own, loaded only where several processes train on GPUs (train/device_groups.cpp), so that
// the program runs on machines without it.
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "world/device_group.h"

namespace {

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  const char* more = ncclGetLastError(nullptr);
  throw std::runtime_error(std::string("NCCL: ") + call + ": " + ncclGetErrorString(result) +
                           (more != nullptr && *more != '\0' ? std::string(": ") + more : ""));
}

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}

std::string version() {
  int number = 0;
  check(ncclGetVersion(&number), "ncclGetVersion");
  return "NCCL " + std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

class Group final : public lh::DeviceGroup {
 public:
  Group(const std::string& id, int rank, int size, cudaStream_t stream) : rank_(rank), stream_(stream) {
    ncclUniqueId unique;
    if (id.size() != sizeof unique.internal) throw std::runtime_error("NCCL: an id of another length");
    std::memcpy(unique.internal, id.data(), id.size());
    check(ncclCommInitRank(&comm_, size, unique, rank), "ncclCommInitRank");
  }
  // All ranks are through with everything by then. Destroying would wait for them, and one may be lost.
  ~Group() override {
    abort();
    for (void* memory : opened_) cudaIpcCloseMemHandle(memory);
  }

  std::string library() const override { return version(); }
  bool queued() const override { return true; }

  void exchange(const std::vector<lh::DevicePiece>& give, const std::vector<lh::DevicePiece>& take) override {
    enqueue([&] {
      check(ncclGroupStart(), "ncclGroupStart");
      for (const lh::DevicePiece& p : give)
        check(ncclSend(p.data, static_cast<size_t>(p.bytes), ncclInt8, p.rank, comm_, stream_), "ncclSend");
      for (const lh::DevicePiece& p : take)
        check(ncclRecv(p.data, static_cast<size_t>(p.bytes), ncclInt8, p.rank, comm_, stream_), "ncclRecv");
      check(ncclGroupEnd(), "ncclGroupEnd");
    });
  }

  void gather(const std::byte* own, std::byte* all, int64_t bytes) override {
    enqueue(
        [&] { check(ncclAllGather(own, all, static_cast<size_t>(bytes), ncclInt8, comm_, stream_), "ncclAllGather"); });
  }

  void sum(const std::vector<lh::DevicePiece>& values, lh::Summand type) override {
    const auto [element, width] = type == lh::Summand::float32 ? std::pair(ncclFloat32, 4) : std::pair(ncclBfloat16, 2);
    enqueue([&, element = element, width = width] {
      check(ncclGroupStart(), "ncclGroupStart");
      for (const lh::DevicePiece& p : values)
        check(ncclAllReduce(p.data, p.data, static_cast<size_t>(p.bytes / width), element, ncclSum, comm_, stream_),
              "ncclAllReduce");
      check(ncclGroupEnd(), "ncclGroupEnd");
    });
  }

  // Between processes of one machine whose GPUs reach each other: what is read then takes no multiprocessor of either.
  std::string offer(const std::byte* own) override {
    cudaIpcMemHandle_t handle;
    if (cudaIpcGetMemHandle(&handle, const_cast<std::byte*>(own)) == cudaSuccess)
      return machine() + std::string(handle.reserved, sizeof handle.reserved);
    cudaGetLastError();  // that it is not possible is no error
    return {};
  }

  std::vector<const std::byte*> open(const std::byte* own, const std::vector<std::string>& offers) override {
    const std::string here = machine();
    std::vector<const std::byte*> memory;
    for (size_t r = 0; r < offers.size(); ++r) {
      if (static_cast<int>(r) == rank_) {
        memory.push_back(own);
        continue;
      }
      cudaIpcMemHandle_t handle;
      void* theirs = nullptr;
      if (offers[r].size() != here.size() + sizeof handle.reserved || !offers[r].starts_with(here)) return {};
      std::memcpy(handle.reserved, offers[r].data() + here.size(), sizeof handle.reserved);
      if (cudaIpcOpenMemHandle(&theirs, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) {
        cudaGetLastError();
        return {};
      }
      opened_.push_back(theirs);
      memory.push_back(static_cast<const std::byte*>(theirs));
    }
    return memory;
  }

  void take_less() override {
    if (before_ != nullptr) return;
    enqueue([&] {
      ncclConfig_t few = NCCL_CONFIG_INITIALIZER;
      few.maxCTAs = 8;
      ncclComm_t less = nullptr;
      check(ncclCommSplit(comm_, 0, rank_, &less, &few), "ncclCommSplit");
      const std::lock_guard lock(ending_);
      before_ = std::exchange(comm_, less);
    });
  }

  void wait_at_most(double) override {}

  void look() override {
    const std::lock_guard lock(ending_);
    ncclResult_t state = ncclSuccess;
    if (ended_ || ncclCommGetAsyncError(comm_, &state) != ncclSuccess || state == ncclInProgress) return;
    check(state, "between the devices");
  }

  void abort() override {
    const std::lock_guard lock(ending_);
    if (ended_) return;
    ended_ = true;
    // A call in another thread may be waiting for a rank that is lost: then this ends it.
    const std::unique_lock calls(calling_, std::chrono::seconds(2));
    ncclCommAbort(comm_);
    if (before_ != nullptr) ncclCommAbort(before_);
  }

 private:
  template <class Call>
  void enqueue(const Call& call) {
    const std::lock_guard lock(calling_);
    if (ended_) throw std::runtime_error("NCCL: the group has been ended");
    call();
  }

  static std::string machine() {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    return name.data();
  }

  int rank_;
  cudaStream_t stream_;
  ncclComm_t comm_ = nullptr, before_ = nullptr;  // before_: that comm_ is made from, if any
  std::vector<void*> opened_;
  std::mutex ending_;
  std::timed_mutex calling_;
  std::atomic<bool> ended_ = false;
};

class Nccl final : public lh::DeviceGroups {
 public:
  std::string library() const override { return version(); }
  std::string device() const override {
    std::array<char, 32> bus{};
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId");
    return bus.data();
  }
  std::string make_id() const override {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return {id.internal, sizeof id.internal};
  }
  std::unique_ptr<lh::DeviceGroup> join(const std::string& id, int rank, int size, void* stream) const override {
    int device = 0;  // of the stream: this may be a thread that has used no other
    check(cudaStreamGetDevice(static_cast<cudaStream_t>(stream), &device), "cudaStreamGetDevice");
    check(cudaSetDevice(device), "cudaSetDevice");
    return std::make_unique<Group>(id, rank, size, static_cast<cudaStream_t>(stream));
  }
};

}  // namespace

extern "C" lh::DeviceGroups* lora_device_groups() { return new Nccl; }
