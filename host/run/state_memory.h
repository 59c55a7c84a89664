// Memory of optimizer states: the device's, or host memory that copies can run from and to.
#pragma once

#include <string_view>

#include "run/device.h"
#include "run/state_travel.h"

namespace lh {

class StateMemory {
 public:
  StateMemory(Device& device, StatePlace place, int64_t bytes, std::string_view what);
  std::byte* data() const { return place_ == StatePlace::host ? host_.data() : here_.data(); }
  // These wait for what the device is doing.
  void upload(int64_t offset, const void* source, int64_t bytes) const;
  void download(int64_t offset, void* target, int64_t bytes) const;
  void copy(int64_t offset, const std::byte* source, int64_t bytes) const;  // from memory of the device
  void fill(int64_t offset, const Desc& desc, double value) const;          // every element of a tensor
  void clear() const;                                                       // all zero

 private:
  Device& device_;
  StatePlace place_;
  int64_t bytes_;
  DeviceMemory here_;
  StagingMemory host_;
};

}  // namespace lh
