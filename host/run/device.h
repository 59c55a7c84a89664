// A compute device: the kernel library's context and its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "lora_kernels.h"

namespace lh {

class Device {
 public:
  // "cpu" or "cuda"; throws lh::Error(Code::resource) that says what is missing and names the other choice.
  explicit Device(const std::string& name);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  lk_context* context() const { return context_; }
  int threads() const { return lk_context_threads(context_); }
  int64_t allocated() const { return allocated_; }
  int64_t peak() const { return peak_; }
  // Throws lh::Error naming the kernel's own text when status is not LK_OK.
  void check(lk_status status, std::string_view what) const;

 private:
  friend class DeviceMemory;
  lk_context* context_ = nullptr;
  int64_t allocated_ = 0, peak_ = 0;
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

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace lh
