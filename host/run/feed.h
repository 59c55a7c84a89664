// Small inputs on their way to the device: the message of the next step is written and sent while the current one runs.
//
//   host()  ->  fill it  ->  send(bytes)  ->  deliver()  ->  work that reads device()
#pragma once

#include <array>

#include "run/device.h"

namespace lh {

class Feed {
 public:
  Feed(Device& device, int64_t bytes);
  static int64_t device_bytes(int64_t bytes) { return 2 * bytes; }
  std::byte* host();         // where the next message is written; waits until it may be
  void send(int64_t bytes);  // starts its way
  void deliver();            // from here on device() holds it for work of the compute queue
  std::byte* device() const { return memory_.data(); }

 private:
  Device& device_;
  int64_t bytes_, sent_ = 0;
  size_t slot_ = 0;
  std::array<StagingMemory, 2> staging_;
  DeviceMemory memory_;  // what work reads, then the mailbox where the next message arrives
  Event arrived_, taken_;
  Event left_[2];  // the staging memory may be written again
};

}  // namespace lh
