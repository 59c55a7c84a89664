// Trained tensors side by side in sections; what they start from.
#include "compile/adapters.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <tuple>

#include "core/error.h"
#include "core/random.h"

namespace lh {
namespace {

constexpr int64_t alignment = 64;  // elements: 256 bytes

int64_t padded(int64_t elements) { return (elements + alignment - 1) / alignment * alignment; }

void fill(std::span<float> values, const InitialValue& initial, Random& random) {
  for (float& v : values) switch (initial.kind) {
      case InitialValue::Kind::zero:
      case InitialValue::Kind::graph: v = 0; break;
      case InitialValue::Kind::constant: v = static_cast<float>(initial.value); break;
      case InitialValue::Kind::uniform: v = static_cast<float>((2 * random.uniform() - 1) * initial.value); break;
      case InitialValue::Kind::normal: v = static_cast<float>(random.normal() * initial.value); break;
    }
}

// As files have it. get: tensor number t of the module.
LoraModule file_module(const AdaptedModule& module, const std::function<HostTensor(size_t t)>& get) {
  LoraModule out{.name = module.name, .down = {}, .up = {}, .alpha = module.alpha, .rank = module.rank};
  for (size_t t = 0; t < module.tensors.size(); ++t) {
    const std::string& key = module.tensors[t].key;
    if (key == down_key)
      out.down = get(t);
    else if (key == up_key)
      out.up = get(t);
    else
      out.others.emplace_back(key, get(t));
  }
  return out;
}

}  // namespace

Adapters::Adapters(const Graph& graph, const std::vector<AdaptedModule>& modules, bool accumulate)
    : adapted_(modules), sections_{"p", "g"} {
  std::ranges::stable_sort(adapted_, {}, [](const AdaptedModule& module) { return component_of(module.name); });
  if (accumulate) sections_.emplace_back("total");
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
  for (size_t s = 0; s < sections_.size(); ++s) take(device);
}

void Adapters::take(Device& device) {
  const std::vector<float> zeros(static_cast<size_t>(section_elements_), 0.0f);
  memory_.emplace_back(device, section_elements_ * 4, "LoRA tensors and gradients");
  memory_.back().upload(0, zeros.data(), section_elements_ * 4);
}

void Adapters::add_section(const std::string& name) {
  if (has(name)) return;
  sections_.push_back(name);
  if (device_ != nullptr) take(*device_);
}

void Adapters::initialise(uint64_t seed, const BaseWeight& base) {
  size_t i = 0;  // of tensors_
  for (const AdaptedModule& module : adapted_) {
    NamedTensors made = values_of_graph(module, base);
    for (const AdaptedTensor& tensor : module.tensors) {
      HostTensor values(Desc{DType::f32, tensors_[i].shape});
      Random random(seed, Purpose::adapter_init, i, 0);
      if (tensor.initial.kind == InitialValue::Kind::graph)
        values = std::move(made.at(tensor.key));
      else
        fill(values.as<float>(), tensor.initial, random);
      upload("p", tensors_[i++], values);
    }
  }
}

NamedTensors Adapters::values_of_graph(const AdaptedModule& module, const BaseWeight& base) const {
  NamedTensors made;
  if (std::ranges::none_of(
          module.tensors, [](const AdaptedTensor& tensor) { return tensor.initial.kind == InitialValue::Kind::graph; }))
    return made;
  if (!base)
    fail(Code::internal, "{}: its adapter begins with what the weight says, which is not at hand", module.name);
  OwnedProgram program(*device_, module.rule->initial_values(module.layer), {}, "first values of adapters");
  if (program->graph().inputs.contains("weight")) program->set_input("weight", base(module.name + ".weight"));
  program->run();
  for (const auto& [key, value] : program->graph().outputs) made[key] = program->output(key);
  return made;
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
  for (const AdapterTensor& tensor : tensors_)
    if (const auto it = graph.params.find(tensor.name); it != graph.params.end())
      externals[it->second] = at(section, tensor);
}

std::vector<LoraModule> Adapters::modules(const std::string& section) const {
  std::vector<LoraModule> result;
  for (size_t i = 0; i < adapted_.size(); ++i)
    result.push_back(file_module(adapted_[i], [&](size_t t) { return download(section, tensors_[first_[i] + t]); }));
  return result;
}

std::vector<LoraModule> Adapters::empty_modules() const {
  std::vector<LoraModule> result;
  for (size_t i = 0; i < adapted_.size(); ++i) {
    const AdaptedModule& module = adapted_[i];
    result.push_back(file_module(module, [&](size_t t) {
      const Shape& shape = tensors_[first_[i] + t].shape;
      const std::string& key = module.tensors[t].key;
      if (key == down_key) return HostTensor(Desc{DType::f32, shape.with(0, 1)});
      if (key == up_key) return HostTensor(Desc{DType::f32, shape.with(1, 1)});
      // Which axis has norms is seen by their shape; other tensors may be as large as a weight.
      const bool vector = shape.rank() > 0 && shape.numel() == *std::ranges::max_element(shape.dims());
      return HostTensor(Desc{DType::f32, vector ? shape : Shape{1}});
    }));
    result.back().alpha = module.alpha == 0 ? 0 : 1;
  }
  return result;
}

}  // namespace lh
