// How the devices of the processes of a run pass memory to each other: by NCCL where all of them can, otherwise through
// the memory of their hosts.
#pragma once

#include <memory>
#include <string>

#include "run/device.h"
#include "world/device_group.h"
#include "world/world.h"

namespace lh {

// Through the memory of the host, whatever the device.
class HostGroup final : public DeviceGroup {
 public:
  HostGroup(World& world, Device& device) : world_(world), device_(device) {}
  std::string library() const override { return "the memory of the host"; }
  bool queued() const override { return false; }
  void exchange(const std::vector<DevicePiece>& give, const std::vector<DevicePiece>& take) override;
  void gather(const std::byte* own, std::byte* all, int64_t bytes) override;
  void sum(const std::vector<DevicePiece>& values, Summand type) override;
  std::string offer(const std::byte*) override { return {}; }
  std::vector<const std::byte*> open(const std::byte*, const std::vector<std::string>&) override { return {}; }
  void take_less() override;
  void wait_at_most(double seconds) override { limit_ = seconds; }
  void look() override {}
  void abort() override {}

 private:
  World& world_;
  Device& device_;
  double limit_ = 0;
};

// [together] `queue`: whose operations the work happens among, where it is queued: of the same device as `device`.
std::unique_ptr<DeviceGroup> open_device_group(World& world, Device& device, Device& queue);

// "NCCL 2.28.9", or that there is none, and how to get it.
std::string device_group_text();

}  // namespace lh
