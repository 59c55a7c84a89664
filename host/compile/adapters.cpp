// Trained tensors side by side in sections of one piece of memory.
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

std::vector<std::string> Adapters::saved_sections() const {
  const bool start = std::ranges::find(sections_, start_section) != sections_.end();
  return start ? std::vector<std::string>{"p", start_section} : std::vector<std::string>{"p"};
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
  memory_ = DeviceMemory(device, bytes(), "LoRA tensors and gradients");
  const std::vector<float> zeros(static_cast<size_t>(section_elements_), 0.0f);
  for (size_t s = 0; s < sections_.size(); ++s)
    memory_.upload(static_cast<int64_t>(s) * section_elements_ * 4, zeros.data(), section_elements_ * 4);
}

void* Adapters::at(const std::string& section, const AdapterTensor& tensor) const {
  const auto it = std::ranges::find(sections_, section);
  if (it == sections_.end()) fail(Code::internal, "no section '{}' of trained tensors", section);
  return memory_.data() + ((it - sections_.begin()) * section_elements_ + tensor.offset) * 4;
}

void Adapters::upload(const std::string& section, const AdapterTensor& tensor, const HostTensor& values) const {
  const auto offset = static_cast<std::byte*>(at(section, tensor)) - memory_.data();
  const HostTensor kept = tensor.channels_last ? nchw_to_nhwc(values) : values;
  memory_.upload(offset, kept.data.data(), kept.desc.bytes());
}

HostTensor Adapters::download(const std::string& section, const AdapterTensor& tensor) const {
  const Shape& s = tensor.shape;
  HostTensor values(Desc{DType::f32, tensor.channels_last ? Shape{s[0], s[2], s[3], s[1]} : s});
  const auto offset = static_cast<std::byte*>(at(section, tensor)) - memory_.data();
  memory_.download(offset, values.data.data(), values.desc.bytes());
  return tensor.channels_last ? nhwc_to_nchw(values) : values;
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
