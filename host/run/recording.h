// Work that is done again and again: recorded once where the device can do that (a CUDA graph), so that repeating it
// costs one launch.
#pragma once

#include <functional>

#include "run/device.h"

namespace lh {

class Recording {
 public:
  // `work` only enqueues, always the same operations on the same memory.
  Recording(Device& device, std::function<void()> work) : device_(device), work_(std::move(work)) {}
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // The operations of the work must have run once without being recorded: that is when plans are made and algorithms
  // timed.
  void launch();

 private:
  Device& device_;
  std::function<void()> work_;
  lk_graph* graph_ = nullptr;
};

}  // namespace lh
