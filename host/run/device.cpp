// RAII over the kernel library.
#include "run/device.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "core/bytes.h"
#include "core/cache_folder.h"
#include "core/error.h"
#include "core/log.h"
#include "lora_kernels_choices.h"
#include "lora_kernels_trace.h"

namespace lh {
namespace {

// "cuda" and "cuda:0" are 0, "cuda:1" is 1, anything else -1.
int32_t cuda_index(std::string_view name) {
  if (!name.starts_with("cuda")) return -1;
  name.remove_prefix(4);
  if (name.empty()) return 0;
  int32_t index = -1;
  const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), index);
  return name[0] == ':' && error == std::errc() && end == name.data() + name.size() ? index : -1;
}

// Where the choice of matrix-product algorithms is kept between runs; empty where there is no home.
std::string tuning_cache() {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return {};
  std::error_code none;
  std::filesystem::create_directories(folder, none);
  return (folder / "gemm-algorithms.txt").string();
}

Code code_of(lk_status status) {
  switch (status) {
    case LK_E_MEMORY:
    case LK_E_DEVICE: return Code::resource;
    case LK_E_NO_DRIVER: return Code::no_driver;
    case LK_E_OLD_DRIVER: return Code::old_driver;
    case LK_E_LIBRARY: return Code::library;
    default: return Code::internal;
  }
}

// Behind the line that names the node (Program::run).
void log_call(void*, const lk_call_trace* call) {
  const std::string time = call->milliseconds < 0 ? "recorded" : fmt::format("{:.3f} ms", call->milliseconds);
  const std::string passed = *call->passed_over == '\0' ? "" : fmt::format(" (not {})", call->passed_over);
  log_info("dispatch:   {}: {}{}", time, call->kernels, passed);
}

}  // namespace

Device::Device(const std::string& name, bool deterministic)
    : name_(name), cpu_(name == "cpu" || name == "card"), card_(name == "card") {
  const int32_t index = cpu_ ? 0 : cuda_index(name);
  if (index < 0) fail(Code::config, "device: '{}' is none of cuda, cuda:<number> and cpu", name);
  if (!cpu_ && lk_backend_available(LK_CUDA) == 0)
    fail(Code::resource,
         "device: cuda was asked for (it is the default), but this lora-host has no CUDA backend. Use `device: cpu`, "
         "or install lora-host-cuda, or build with a CUDA toolkit");
  const std::string cache = cpu_ ? "" : tuning_cache();
  const lk_context_params params{.backend = cpu_ ? LK_CPU : LK_CUDA,
                                 .device = index,
                                 .threads = 0,
                                 .fast = !deterministic,
                                 .tuning_cache = cache.c_str()};
  const lk_status status = lk_context_create(&params, &context_);
  if (status != LK_OK)
    fail(status == LK_E_INVALID ? Code::config : code_of(status),
         "device: {} cannot be used: {}. Or use `device: cpu`, which needs no GPU", name, lk_last_error(nullptr));
  check(lk_choose_by_time(context_, 0), "choices");
  if (verbose("dispatch")) check(lk_set_trace(context_, log_call, nullptr), "trace");
}

Device::~Device() { lk_context_destroy(context_); }

lk_device_info Device::info() const {
  lk_device_info info{};
  check(lk_get_device_info(context_, &info), "device");
  return info;
}

void Device::synchronize() const { check(lk_synchronize(context_), "synchronize"); }

HostTensor Device::download(const lk_tensor& tensor) const {
  HostTensor result(Desc{static_cast<DType>(tensor.dtype), Shape(std::vector(tensor.dims, tensor.dims + tensor.rank))});
  const auto strides = kernel_strides(tensor);
  const int64_t size = dtype_size(result.desc.dtype), count = result.desc.shape.numel();
  int64_t line = 1, pitch = count;
  for (int64_t i = tensor.rank - 1; i >= 0; --i) {
    const auto axis = static_cast<size_t>(i);
    if (tensor.dims[axis] != 1 && strides[axis] != line) {
      pitch = strides[axis];
      break;
    }
    line *= tensor.dims[axis];
  }
  std::vector<std::byte> extent(static_cast<size_t>(((count / line - 1) * pitch + line) * size));
  check(lk_download(context_, extent.data(), tensor.data, static_cast<int64_t>(extent.size())), "download");
  for (int64_t i = 0; i < count / line; ++i)
    std::copy_n(extent.data() + i * pitch * size, line * size, result.data.data() + i * line * size);
  return result;
}

void Device::check(lk_status status, std::string_view what) const {
  if (status != LK_OK) fail(code_of(status), "{}: {}", what, lk_last_error(context_));
}

std::string Device::choices() const {
  const char* lines = nullptr;
  check(lk_get_choices(context_, &lines), "choices");
  return lines;
}

void Device::take_choices(const std::string& lines) const {
  const lk_status status = lk_take_choices(context_, lines.c_str());
  if (status == LK_E_INVALID) fail(Code::data, "{}", lk_last_error(context_));
  check(status, "choices");
}

TimedChoices::TimedChoices(const Device& device) : device_(device) {
  device.check(lk_choose_by_time(device.context(), 1), "choices");
}

TimedChoices::~TimedChoices() { lk_choose_by_time(device_.context(), 0); }

DeviceMemory::DeviceMemory(Device& device, int64_t bytes, std::string_view what) : device_(&device), bytes_(bytes) {
  if (device.limit_ > 0 && bytes > device.limit_ - device.taken_)
    fail(Code::resource, "no memory for {} ({}): {} of the {} that may be used are taken (memory.budget)", what,
         size_text(bytes), size_text(device.taken_), size_text(device.limit_));
  void* data = nullptr;
  const lk_status status = lk_alloc(device.context(), std::max<int64_t>(bytes, 1), &data);
  if (status != LK_OK)
    fail(Code::resource, "no memory for {} ({} MiB): {}", what, bytes >> 20, lk_last_error(device.context()));
  data_ = static_cast<std::byte*>(data);
  device.taken_ += bytes_;
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  lk_free(device_->context(), data_);
  device_->taken_ -= bytes_;
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

void DeviceMemory::fill(int64_t offset, const Desc& desc, double value) const {
  if (desc.bytes() == 0) return;
  const lk_fill_params params{.y = kernel_tensor(desc, data_ + offset), .value = value};
  device_->check(lk_fill(device_->context(), &params), "first values");
}

void DeviceMemory::clear() const { fill(0, {DType::u8, {bytes_}}, 0); }

StagingMemory::StagingMemory(Device& device, int64_t bytes) : device_(&device), bytes_(bytes) {
  void* data = nullptr;
  device.check(lk_host_alloc(device.context(), std::max<int64_t>(bytes, 1), &data), "staging memory");
  data_ = static_cast<std::byte*>(data);
}

StagingMemory::~StagingMemory() {
  if (data_ != nullptr) lk_host_free(device_->context(), data_);
}

StagingMemory::StagingMemory(StagingMemory&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

StagingMemory& StagingMemory::operator=(StagingMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Event::Event(Device& device) : device_(device) { device.check(lk_event_create(device.context(), &event_), "event"); }

Event::~Event() { lk_event_destroy(device_.context(), event_); }

void Event::record(lk_queue queue) const { record(device_, queue); }

void Event::hold(lk_queue queue) const { hold(device_, queue); }

void Event::record(const Device& other, lk_queue queue) const {
  other.check(lk_event_record(other.context(), event_, queue), "event");
}

void Event::hold(const Device& other, lk_queue queue) const {
  other.check(lk_event_wait(other.context(), event_, queue), "event");
}

void Event::finish() const { device_.check(lk_event_finish(device_.context(), event_), "the device"); }

double Event::seconds_since(const Event& start) const {
  float milliseconds = 0;
  device_.check(lk_event_elapsed(device_.context(), start.event_, event_, &milliseconds), "event");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace lh
