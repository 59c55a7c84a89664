#include "run/feed.h"

#include "core/error.h"

namespace lh {

Feed::Feed(Device& device, int64_t bytes)
    : device_(device),
      bytes_(bytes),
      staging_{StagingMemory(device, bytes), StagingMemory(device, bytes)},
      memory_(device, device_bytes(bytes), "inputs of a step"),
      arrived_(device),
      taken_(device),
      left_{Event(device), Event(device)} {
  taken_.record(LK_COMPUTE);
  for (const Event& event : left_) event.record(LK_TRANSFER);
}

std::byte* Feed::host() {
  left_[slot_].finish();
  return staging_[slot_].data();
}

void Feed::send(int64_t bytes) {
  if (bytes > bytes_) fail(Code::internal, "a message of {} bytes, there is room for {}", bytes, bytes_);
  sent_ = bytes;
  taken_.hold(LK_TRANSFER);  // the last message is out of the mailbox
  device_.check(lk_copy_async(device_.context(), LK_TRANSFER, memory_.data() + bytes_, staging_[slot_].data(), bytes),
                "inputs of a step");
  left_[slot_].record(LK_TRANSFER);
  arrived_.record(LK_TRANSFER);
  slot_ = 1 - slot_;
}

void Feed::deliver() {
  arrived_.hold(LK_COMPUTE);
  device_.check(lk_copy_async(device_.context(), LK_COMPUTE, memory_.data(), memory_.data() + bytes_, sent_),
                "inputs of a step");
  taken_.record(LK_COMPUTE);
}

}  // namespace lh
