// Trained tensors side by side in sections.
#include "compile/adapters.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>

#include "core/error.h"

namespace lh {
namespace {

constexpr int64_t alignment = 64;  // elements: 256 bytes

int64_t padded(int64_t elements) { return (elements + alignment - 1) / alignment * alignment; }

}  // namespace

Adapters::Adapters(const Graph& graph, const std::vector<AdaptedModule>& modules, bool accumulate)
    : adapted_(modules), sections_{"p", "g"} {
  std::ranges::stable_sort(adapted_, {}, [](const AdaptedModule& module) { return component_of(module.name); });
  if (accumulate) sections_.emplace_back("total");
  if (std::ranges::any_of(adapted_, [](const AdaptedModule& module) { return module.form.from_start; }))
    sections_.emplace_back(start_section);
  for (const AdaptedModule& module : adapted_) {
    first_.push_back(tensors_.size());
    for (const AdaptedTensor& tensor : module.tensors) {
      const ValueInfo& info = graph.info(tensor.value);
      tensors_.push_back({info.name, info.desc.shape, 0, info.channels_last, tensor.role, module.name, module.rank});
    }
  }
  std::vector<size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) {
    const AdapterTensor& tensor = tensors_[i];
    const std::span<const int64_t> dims = tensor.shape.dims();
    return std::tuple(component_of(tensor.name), tensor.role, std::vector<int64_t>(dims.begin(), dims.end()), i);
  };
  std::ranges::sort(order, {}, place);
  for (const size_t i : order) {
    tensors_[i].offset = section_elements_;
    section_elements_ += padded(tensors_[i].shape.numel());
  }
}

bool Adapters::has(std::string_view section) const { return std::ranges::find(sections_, section) != sections_.end(); }

std::vector<std::string> Adapters::saved_sections() const {
  return has(start_section) ? std::vector<std::string>{"p", start_section} : std::vector<std::string>{"p"};
}

std::vector<TrainedTensor> Adapters::trained() const {
  std::vector<TrainedTensor> all;
  for (const AdapterTensor& tensor : tensors_) {
    all.push_back({{.name = tensor.name,
                    .module = tensor.module,
                    .role = static_cast<int32_t>(tensor.role),
                    .rank = tensor.rank,
                    .shape = tensor.shape},
                   tensor.channels_last,
                   tensor.offset});
  }
  return all;
}

int64_t Adapters::parameter_count() const {
  int64_t count = 0;
  for (const AdapterTensor& t : tensors_) count += t.shape.numel();
  return count;
}

void Adapters::allocate(Device& device) {
  device_ = &device;
  memory_.clear();
  for (size_t s = 0; s < sections_.size(); ++s) add_memory(device);
}

void Adapters::add_memory(Device& device) {
  memory_.emplace_back(device, section_elements_ * 4, "LoRA tensors and gradients");
  memory_.back().clear();
}

void Adapters::add_section(const std::string& name) {
  if (has(name)) return;
  sections_.push_back(name);
  if (device_ != nullptr) add_memory(*device_);
}

const DeviceMemory& Adapters::memory(const std::string& section) const {
  const auto it = std::ranges::find(sections_, section);
  if (it == sections_.end()) fail(Code::internal, "no section '{}' of trained tensors", section);
  return memory_.at(static_cast<size_t>(it - sections_.begin()));
}

void* Adapters::at(const std::string& section, const AdapterTensor& tensor) const {
  return memory(section).data() + tensor.offset * 4;
}

void Adapters::upload(const std::string& section, const AdapterTensor& tensor, const HostTensor& values) const {
  if (values.desc != Desc{DType::f32, tensor.shape})
    fail(Code::internal, "trained tensor '{}' is {}, given {}", tensor.name, Desc{DType::f32, tensor.shape}.text(),
         values.desc.text());
  const HostTensor kept = tensor.channels_last ? nchw_to_nhwc(values) : values;
  memory(section).upload(tensor.offset * 4, kept.data.data(), kept.desc.bytes());
}

HostTensor Adapters::download(const std::string& section, const AdapterTensor& tensor) const {
  const Shape& s = tensor.shape;
  HostTensor values(Desc{DType::f32, tensor.channels_last ? Shape{s[0], s[2], s[3], s[1]} : s});
  memory(section).download(tensor.offset * 4, values.data.data(), values.desc.bytes());
  return tensor.channels_last ? nhwc_to_nchw(values) : values;
}

void Adapters::copy(const std::string& from, const std::string& to) const {
  device_->check(
      lk_copy_async(device_->context(), LK_COMPUTE, memory(to).data(), memory(from).data(), memory(to).bytes()),
      "trained tensors");
}

void Adapters::bind(const Graph& graph, Externals& externals, const std::string& section) const {
  const auto give = [&](const std::string& name, const std::string& from, const AdapterTensor& tensor) {
    if (const auto it = graph.params.find(name); it != graph.params.end()) externals[it->second] = at(from, tensor);
  };
  for (const AdapterTensor& tensor : tensors_) {
    give(tensor.name, section, tensor);
    give(start_name(tensor.name), start_section, tensor);
  }
}

}  // namespace lh
