// A compute device: the kernel library's context and its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "lora_kernels.h"

namespace lh {

class SharedWeights;

class Device {
 public:
  // "cpu", "cuda" or "cuda:1"; throws lh::Error that says what is missing and names the other choice. Without
  // `deterministic`, sums may be made in an order that changes from run to run where that is faster.
  explicit Device(const std::string& name, bool deterministic = true);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  lk_context* context() const { return context_; }
  const std::string& name() const { return name_; }
  bool is_cpu() const { return cpu_; }
  // "card": a CPU on which a run of a GPU is planned and nothing is run.
  bool stands_for_gpu() const { return card_; }
  int threads() const { return lk_context_threads(context_); }
  lk_device_info info() const;
  int64_t peak() const { return lk_memory_peak(context_); }
  // From here on DeviceMemory is refused, by its name, where together it would take more than so many bytes, whatever
  // the device has: a large card stands for a small one. 0: no such limit.
  void limit_memory(int64_t bytes) { limit_ = bytes; }
  void synchronize() const;
  // Whether what is enqueued is recorded, and so has run before (recording.h).
  bool is_recording() const { return recording_; }
  void set_recording(bool on) { recording_ = on; }
  // What fetch nodes of programs on this device read are parts of weights, where this is set.
  SharedWeights* shared_weights() const { return shared_weights_; }
  void use(SharedWeights* shared) { shared_weights_ = shared; }
  HostTensor download(const lk_tensor& tensor) const;  // dense or in lines
  // What TimedChoices came to, as lines of text (lora_kernels_choices.h).
  std::string choices() const;
  // Throws lh::Error(Code::data) where a line is damaged.
  void take_choices(const std::string& lines) const;
  // Throws lh::Error naming the kernel's own text when status is not LK_OK.
  void check(lk_status status, std::string_view what) const;

 private:
  friend class DeviceMemory;
  lk_context* context_ = nullptr;
  std::string name_;
  bool cpu_, card_, recording_ = false;
  int64_t limit_ = 0, taken_ = 0;
  SharedWeights* shared_weights_ = nullptr;
};

// While one lives, matrix products are chosen by time: for the steps of a run, whose states hold the choices. Otherwise
// they are the library's first guesses, so that what is encoded, sampled and validated is the same elsewhere.
class TimedChoices {
 public:
  explicit TimedChoices(const Device& device);
  ~TimedChoices();
  TimedChoices(const TimedChoices&) = delete;
  TimedChoices& operator=(const TimedChoices&) = delete;

 private:
  const Device& device_;
};

// Device memory, move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device& device, int64_t bytes, std::string_view what);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  void upload(int64_t offset, const void* source, int64_t bytes) const;
  void download(int64_t offset, void* target, int64_t bytes) const;
  // These are enqueued, and made on the device: host memory has no part in it.
  void fill(int64_t offset, const Desc& desc, double value) const;  // every element of a tensor that is there
  void clear() const;                                               // all zero

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Host memory that asynchronous copies use, move-only.
class StagingMemory {
 public:
  StagingMemory() = default;
  StagingMemory(Device& device, int64_t bytes);
  ~StagingMemory();
  StagingMemory(StagingMemory&& other) noexcept;
  StagingMemory& operator=(StagingMemory&& other) noexcept;
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A place in the device's work that can be waited for.
class Event {
 public:
  explicit Event(Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(lk_queue queue) const;
  void hold(lk_queue queue) const;  // the queue goes on when the event was reached
  // Of another context of the same device.
  void record(const Device& other, lk_queue queue) const;
  void hold(const Device& other, lk_queue queue) const;
  void finish() const;  // the host goes on when the event was reached
  double seconds_since(const Event& start) const;

 private:
  Device& device_;
  lk_event* event_ = nullptr;
};

}  // namespace lh
