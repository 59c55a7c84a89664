// Finds out whether all processes can use NCCL, each with a GPU of its own, and what to do where they cannot.
#include "train/device_groups.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/module.h"
#include "core/signals.h"
#include "lora_kernels_stream.h"

namespace lh {
namespace {

constexpr const char* how_to_get =
    "Install NCCL with its headers (libnccl-dev of NVIDIA's package source, or -DLORA_NCCL_ROOT=FOLDER) and build "
    "again";

// What keeps a process from a group is empty, or said.
struct Ability {
  std::string obstacle, library, device;
};

#ifdef LORA_NCCL
const DeviceGroups& groups() {
  static const DeviceGroups* const module = [] {
    const auto open = reinterpret_cast<DeviceGroups* (*)()>(
        module_function({"world/nccl.so", "lora-host-nccl", Symbols::shared}, "lora_device_groups"));
    return open();
  }();
  return *module;
}

Ability ability() {
  if (const char* wish = std::getenv("LORA_NCCL"); wish != nullptr && std::string_view(wish) == "0")
    return {.obstacle = "LORA_NCCL=0 is set", .library = {}, .device = {}};
  try {
    return {.obstacle = {}, .library = groups().library(), .device = groups().device()};
  } catch (const std::exception& e) {
    std::string obstacle = e.what();
    std::ranges::replace(obstacle, '\n', ' ');  // which parts what ranks say of themselves
    return {.obstacle = obstacle, .library = {}, .device = {}};
  }
}

// Meeting the others takes as long as they take: a thread waits for them, and this one looks whether they are there.
std::unique_ptr<DeviceGroup> join(World& world, Device& queue) {
  void* stream = nullptr;
  queue.check(lk_context_stream(queue.context(), &stream), "the queue between the devices");
  const std::string id = world.of_first(world.first() ? groups().make_id() : "");
  std::promise<std::unique_ptr<DeviceGroup>> promise;
  std::future<std::unique_ptr<DeviceGroup>> met = promise.get_future();
  std::thread([id, rank = world.rank(), size = world.size(), stream, promise = std::move(promise)]() mutable {
    try {
      promise.set_value(groups().join(id, rank, size, stream));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  while (met.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    world.look();
    check_hurry();
  }
  return met.get();
}
#else
Ability ability() { return {.obstacle = std::string("this lora-host was built without NCCL. ") + how_to_get}; }
std::unique_ptr<DeviceGroup> join(World&, Device&) { fail(Code::internal, "NCCL is not there"); }
#endif

}  // namespace

void HostGroup::exchange(const std::vector<DevicePiece>& give, const std::vector<DevicePiece>& take) {
  const auto ranks = static_cast<size_t>(world_.size());
  auto parcel = std::make_shared<Parcel>();
  const auto lay_out = [&](const std::vector<DevicePiece>& pieces, Pieces& laid) {
    laid.at.assign(ranks, 0);
    laid.bytes.assign(ranks, 0);
    for (const DevicePiece& p : pieces) laid.bytes[static_cast<size_t>(p.rank)] += p.bytes;
    int64_t total = 0;
    for (size_t r = 0; r < ranks; ++r) {
      laid.at[r] = total;
      total += laid.bytes[r];
    }
    laid.data.resize(static_cast<size_t>(total));
  };
  lay_out(give, parcel->out);
  lay_out(take, parcel->in);
  std::vector<int64_t> at = parcel->out.at;
  const auto place = [&](Pieces& laid, const DevicePiece& p) {
    return laid.data.data() + std::exchange(at[static_cast<size_t>(p.rank)], at[static_cast<size_t>(p.rank)] + p.bytes);
  };
  for (const DevicePiece& p : give)
    device_.check(lk_download(device_.context(), place(parcel->out, p), p.data, p.bytes), "what goes to another rank");
  world_.exchange(parcel, limit_);
  at = parcel->in.at;
  for (const DevicePiece& p : take)
    device_.check(lk_upload(device_.context(), p.data, place(parcel->in, p), p.bytes), "what comes from another rank");
}

void HostGroup::gather(const std::byte* own, std::byte* all, int64_t bytes) {
  std::vector<DevicePiece> give, take;
  for (int r = 0; r < world_.size(); ++r) {
    give.push_back({r, const_cast<std::byte*>(own), bytes});
    take.push_back({r, all + r * bytes, bytes});
  }
  exchange(give, take);
}

void HostGroup::sum(const std::vector<DevicePiece>&, Summand) {
  fail(Code::internal, "sums through the host are made in order");
}

void HostGroup::take_less() { fail(Code::internal, "what goes through the host takes nothing of the device"); }

std::unique_ptr<DeviceGroup> open_device_group(World& world, Device& device, Device& queue) {
  auto by_host = std::make_unique<HostGroup>(world, device);
  if (device.is_cpu()) return by_host;
  const Ability own = ability();
  std::string obstacle;
  std::set<std::string> devices;
  int rank = 0;
  for (const std::string& text :
       world.gather(fmt::format("{}\n{}\n{} {}", own.obstacle, own.library, RankProcess::own().machine, own.device))) {
    const size_t first = text.find('\n'), second = text.find('\n', first + 1);
    const std::string theirs = text.substr(0, first), library = text.substr(first + 1, second - first - 1);
    if (obstacle.empty() && !theirs.empty())
      obstacle = fmt::format("{}: {}", world.name(rank), theirs);
    else if (obstacle.empty() && library != own.library)
      obstacle = fmt::format("{} has {}, {} has {}", world.name(rank), library, world.name(world.rank()), own.library);
    else if (obstacle.empty() && !devices.insert(text.substr(second + 1)).second)
      obstacle = fmt::format("{} uses the same GPU as another process", world.name(rank));
    ++rank;
  }
  if (!obstacle.empty()) {
    if (world.first())
      log_warning("between the GPUs everything goes through the memory of the host, not by NCCL: {}", obstacle);
    return by_host;
  }
  return join(world, queue);
}

std::string device_group_text() {
#ifdef LORA_NCCL
  try {
    return groups().library();
  } catch (const std::exception& e) {
    return std::string("NCCL: cannot be loaded: ") + e.what();
  }
#else
  return std::string("NCCL: none, GPUs pass memory through their hosts. ") + how_to_get;
#endif
}

}  // namespace lh
