#include "run/state_memory.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/parallel.h"

namespace lh {
namespace {

// The value as one element of that type, as lk_fill rounds it.
HostTensor element_of(DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::u8) {
    HostTensor element(Desc{dtype, {1}});
    element.as<uint8_t>()[0] = static_cast<uint8_t>(value);
    return element;
  }
  if (dtype == DType::i32) {
    const auto whole = static_cast<int32_t>(value);
    return HostTensor::from_ints({1}, std::span(&whole, 1));
  }
  return converted(HostTensor::from_floats({1}, std::span(&narrow, 1)), dtype);
}

template <typename T>
void repeat(const HostTensor& element, std::byte* out, int64_t elements) {
  auto* const to = reinterpret_cast<T*>(out);
  in_threads(elements, 1 << 20,
             [&](int64_t first, int64_t end) { std::fill(to + first, to + end, element.as<T>()[0]); });
}

}  // namespace

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

void StateMemory::copy(int64_t offset, const std::byte* source, int64_t bytes) const {
  if (place_ == StatePlace::device)
    device_.check(lk_copy_async(device_.context(), LK_COMPUTE, data() + offset, source, bytes), "optimizer states");
  else
    device_.check(lk_download(device_.context(), data() + offset, source, bytes), "optimizer states");
}

void StateMemory::fill(int64_t offset, const Desc& desc, double value) const {
  if (place_ == StatePlace::device) return here_.fill(offset, desc, value);
  device_.synchronize();
  const HostTensor element = element_of(desc.dtype, value);
  const auto elements = desc.shape.numel();
  switch (element.data.size()) {
    case 1: return repeat<uint8_t>(element, data() + offset, elements);
    case 2: return repeat<uint16_t>(element, data() + offset, elements);
    case 4: return repeat<uint32_t>(element, data() + offset, elements);
    default: return repeat<uint64_t>(element, data() + offset, elements);
  }
}

void StateMemory::clear() const { fill(0, {DType::u8, {bytes_}}, 0); }

}  // namespace lh
