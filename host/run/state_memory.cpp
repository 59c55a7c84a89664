#include "run/state_memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace lh {

StateMemory::StateMemory(Device& device, StatePlace place, int64_t bytes, std::string_view what)
    : device_(device), place_(place), bytes_(bytes) {
  if (place == StatePlace::host)
    host_ = StagingMemory(device, bytes);
  else
    here_ = DeviceMemory(device, bytes, what);
}

void StateMemory::upload(int64_t offset, const void* source, int64_t bytes) const {
  if (place_ == StatePlace::device) return here_.upload(offset, source, bytes);
  device_.synchronize();
  std::memcpy(data() + offset, source, static_cast<size_t>(bytes));
}

void StateMemory::download(int64_t offset, void* target, int64_t bytes) const {
  if (place_ == StatePlace::device) return here_.download(offset, target, bytes);
  device_.synchronize();
  std::memcpy(target, data() + offset, static_cast<size_t>(bytes));
}

void StateMemory::clear() const {
  if (bytes_ == 0) return;
  if (place_ == StatePlace::host) {
    device_.synchronize();
    std::fill_n(data(), bytes_, std::byte{0});
    return;
  }
  const std::vector<std::byte> zeros(static_cast<size_t>(bytes_));
  here_.upload(0, zeros.data(), bytes_);
}

}  // namespace lh
