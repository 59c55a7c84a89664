// Trained tensors as LoRA files have them.
#include <algorithm>
#include <functional>
#include <span>

#include "compile/adapters.h"

namespace lh {
namespace {

// As files have it. get: tensor number t of the module.
LoraModule file_module(const AdaptedModule& module, const std::function<HostTensor(size_t t)>& get) {
  const int64_t times = module.form.from_start ? 2 : 1;
  LoraModule out{.name = module.name,
                 .down = {},
                 .up = {},
                 .alpha = module.alpha * static_cast<double>(times),
                 .rank = module.rank * times};
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

// The pair of twice the rank of a change that is counted from a start: [A; A - A_0] and [B - B_0, B_0], whose product
// is B A - B_0 A_0. A file in half precision keeps small changes so.
HostTensor down_from_start(const HostTensor& down, const HostTensor& start) {
  const auto a = down.as<float>(), a_0 = start.as<float>();
  HostTensor both(Desc{DType::f32, down.desc.shape.with(0, 2 * down.desc.shape[0])});
  const auto change = std::ranges::copy(a, both.as<float>().begin()).out;
  std::ranges::transform(a, a_0, change, std::minus{});
  return both;
}
HostTensor up_from_start(const HostTensor& up, const HostTensor& start) {
  const auto rank = static_cast<size_t>(up.desc.shape[1]);
  HostTensor both(Desc{DType::f32, up.desc.shape.with(1, 2 * up.desc.shape[1])});
  for (size_t row = 0; row < static_cast<size_t>(up.desc.shape[0]); ++row) {
    const auto b = up.as<float>().subspan(row * rank, rank), b_0 = start.as<float>().subspan(row * rank, rank);
    const auto out = both.as<float>().subspan(2 * row * rank, 2 * rank);
    std::ranges::transform(b, b_0, out.begin(), std::minus{});
    std::ranges::copy(b_0, out.begin() + static_cast<int64_t>(rank));
  }
  return both;
}

}  // namespace

std::vector<LoraModule> Adapters::modules(const std::string& section) const {
  std::vector<LoraModule> result;
  for (size_t i = 0; i < adapted_.size(); ++i)
    result.push_back(file_module(adapted_[i], [&](size_t t) { return file_values(i, t, section); }));
  return result;
}

HostTensor Adapters::file_values(size_t module, size_t t, const std::string& section) const {
  const AdapterTensor& tensor = tensors_[first_[module] + t];
  HostTensor values = download(section, tensor);
  if (!adapted_[module].form.from_start) return values;
  const HostTensor start = download(start_section, tensor);
  return t == 0 ? down_from_start(values, start) : up_from_start(values, start);
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
