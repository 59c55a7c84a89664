#include "run/device.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace lh {

Device::Device(const std::string& name) {
  const bool cuda = name.starts_with("cuda");
  if (!cuda && name != "cpu") fail(Code::config, "device: '{}' is neither cuda nor cpu", name);
  if (cuda && lk_backend_available(LK_CUDA) == 0)
    fail(Code::resource,
         "device: cuda was asked for (it is the default), but this lora-host was built without the CUDA backend. Use "
         "`device: cpu`, or build with a CUDA toolkit");
  const lk_context_params params{.backend = cuda ? LK_CUDA : LK_CPU, .device = 0, .threads = 0};
  const lk_status status = lk_context_create(&params, &context_);
  if (status != LK_OK)
    fail(Code::resource, "device: {} cannot be used: {}. Use `device: cpu` to train without a GPU", name,
         lk_last_error(nullptr));
}

Device::~Device() { lk_context_destroy(context_); }

void Device::check(lk_status status, std::string_view what) const {
  if (status == LK_OK) return;
  const Code code = status == LK_E_MEMORY || status == LK_E_DEVICE ? Code::resource : Code::internal;
  fail(code, "{}: {}", what, lk_last_error(context_));
}

DeviceMemory::DeviceMemory(Device& device, int64_t bytes, std::string_view what) : device_(&device), bytes_(bytes) {
  void* data = nullptr;
  const lk_status status = lk_alloc(device.context(), std::max<int64_t>(bytes, 1), &data);
  if (status != LK_OK)
    fail(Code::resource, "no memory for {} ({} MiB): {}", what, bytes >> 20, lk_last_error(device.context()));
  data_ = static_cast<std::byte*>(data);
  device.allocated_ += bytes;
  device.peak_ = std::max(device.peak_, device.allocated_);
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  device_->allocated_ -= bytes_;
  lk_free(device_->context(), data_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void DeviceMemory::upload(int64_t offset, const void* source, int64_t bytes) const {
  device_->check(lk_upload(device_->context(), data_ + offset, source, bytes), "upload");
}

void DeviceMemory::download(int64_t offset, void* target, int64_t bytes) const {
  device_->check(lk_download(device_->context(), target, data_ + offset, bytes), "download");
}

}  // namespace lh
