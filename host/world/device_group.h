// Memory of devices that is passed between the processes of a run: what NCCL does between GPUs without their hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lh {

// Memory that goes to a rank, or comes from it.
struct DevicePiece {
  int rank = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// What sums are made of.
enum class Summand { float32, bfloat16 };

// What is marked [together] is called by all ranks in the same order.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual std::string library() const = 0;  // "NCCL 2.28.9"
  // Does work happen in a queue of the device, beside its operations, and may it be recorded with them? Otherwise
  // everything has happened when a call returns, after what the device was told to do before.
  virtual bool queued() const = 0;
  // [together] The pieces for a rank are, one after another, as long as those that it takes from this one. What goes to
  // the rank itself is copied.
  virtual void exchange(const std::vector<DevicePiece>& give, const std::vector<DevicePiece>& take) = 0;
  // [together] From each rank so many bytes, in the order of the ranks.
  virtual void gather(const std::byte* own, std::byte* all, int64_t bytes) = 0;
  // [together] What is in these places becomes the sum of all ranks', added in an order that the library chooses. Only
  // where queued().
  virtual void sum(const std::vector<DevicePiece>& values, Summand type) = 0;
  // What other processes of this machine need in order to read this allocation; empty where they cannot.
  virtual std::string offer(const std::byte* own) = 0;
  // With the offers of all ranks: where this device can read their allocations, its own included, by rank. Empty where
  // it cannot. They stay theirs.
  virtual std::vector<const std::byte*> open(const std::byte* own, const std::vector<std::string>& offers) = 0;
  // [together] From here on it takes few of the device's multiprocessors from what runs beside it. Only where queued().
  virtual void take_less() = 0;
  // How long other ranks may take to come to a call, in seconds; 0: as long as they are heard. Only where not queued().
  virtual void wait_at_most(double seconds) = 0;
  // Throws std::runtime_error where something went wrong in the queue.
  virtual void look() = 0;
  // What is in the queue ends, whatever it has done; the group is of no more use. From any thread.
  virtual void abort() = 0;
};

// What a module that speaks to a library of such groups gives (world/nccl).
class DeviceGroups {
 public:
  virtual ~DeviceGroups() = default;
  virtual std::string library() const = 0;
  // The same for two processes of a machine that use one device, which cannot form a group.
  virtual std::string device() const = 0;
  virtual std::string make_id() const = 0;  // of a new group
  // [together] Joins the group of this id; its work happens in the stream, on its device. It waits for all ranks, and
  // throws std::runtime_error where they cannot meet.
  virtual std::unique_ptr<DeviceGroup> join(const std::string& id, int rank, int size, void* stream) const = 0;
};

}  // namespace lh
