#include "compile/adapters.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "core/error.h"
#include "diffusion/random.h"

namespace lh {
namespace {

constexpr int64_t alignment = 64;  // elements: 256 bytes

int64_t padded(int64_t elements) { return (elements + alignment - 1) / alignment * alignment; }

}  // namespace

Adapters::Adapters(const Graph& graph, const std::vector<AdaptedModule>& modules, bool accumulate)
    : adapted_(modules), sections_{"p", "g"} {
  std::ranges::stable_sort(adapted_, {}, [](const AdaptedModule& module) { return component_of(module.name); });
  if (accumulate) sections_.emplace_back("total");
  for (const AdaptedModule& module : adapted_)
    for (const Value v : {module.down, module.up}) {
      const ValueInfo& info = graph.info(v);
      tensors_.push_back({info.name, info.desc.shape, 0, info.channels_last});
    }
  std::vector<size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) {  // down, up, down, up, ...
    const std::span<const int64_t> dims = tensors_[i].shape.dims();
    return std::tuple(component_of(tensors_[i].name), i % 2, std::vector<int64_t>(dims.begin(), dims.end()), i);
  };
  std::ranges::sort(order, {}, place);
  for (const size_t i : order) {
    tensors_[i].offset = section_elements_;
    section_elements_ += padded(tensors_[i].shape.numel());
  }
}

std::vector<TrainedTensor> Adapters::trained() const {
  std::vector<TrainedTensor> all;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const AdapterTensor& tensor = tensors_[i];
    all.push_back({{.name = tensor.name,
                    .module = adapted_[i / 2].name,
                    .role = i % 2 == 0 ? LH_ROLE_DOWN : LH_ROLE_UP,
                    .rank = tensors_[i / 2 * 2].shape[0],
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
  memory_ = DeviceMemory(device, bytes(), "LoRA tensors and gradients");
  const std::vector<float> zeros(static_cast<size_t>(section_elements_), 0.0f);
  for (size_t s = 0; s < sections_.size(); ++s)
    memory_.upload(static_cast<int64_t>(s) * section_elements_ * 4, zeros.data(), section_elements_ * 4);
}

void Adapters::initialise(uint64_t seed) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    HostTensor values(Desc{DType::f32, tensors_[i].shape});
    if (i % 2 == 0) {  // down, up, down, up, ...
      Random random(seed, Purpose::adapter_init, i, 0);
      const Shape& shape = tensors_[i].shape;
      const double bound = 1 / std::sqrt(static_cast<double>(shape.numel() / shape[0]));
      for (float& v : values.as<float>()) v = static_cast<float>((2 * random.uniform() - 1) * bound);
    }
    upload("p", tensors_[i], values);
  }
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
  for (const AdapterTensor& tensor : tensors_)
    if (const auto it = graph.params.find(tensor.name); it != graph.params.end())
      externals[it->second] = at(section, tensor);
}

std::vector<LoraModule> Adapters::modules(const std::string& section) const {
  std::vector<LoraModule> result;
  for (size_t i = 0; i < adapted_.size(); ++i)
    result.push_back(
        {adapted_[i].name, download(section, tensors_[2 * i]), download(section, tensors_[2 * i + 1]), adapted_[i].alpha});
  return result;
}

std::vector<LoraModule> Adapters::empty_modules() const {
  std::vector<LoraModule> result;
  const auto zeros = [](const Shape& shape) { return HostTensor(Desc{DType::f32, shape}); };
  for (size_t i = 0; i < adapted_.size(); ++i)
    result.push_back(
        {adapted_[i].name, zeros(tensors_[2 * i].shape.with(0, 1)), zeros(tensors_[2 * i + 1].shape.with(1, 1)), 1});
  return result;
}

}  // namespace lh
