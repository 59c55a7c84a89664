#include "compile/plugin_lora.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/load.h"
#include "core/error.h"
#include "core/json_text.h"
#include "passes/layout.h"
#include "plugin/adapter.h"
#include "run/program.h"

namespace lh {
namespace {

constexpr size_t impulses_at_once = 256;  // inputs of a layer that are looked at together

class PluginLora : public ForeignLora {
 public:
  PluginLora(const Registry& registry, const WeightFile& file, const std::string& id)
      : adapter_(registry, id, options_of(file)), device_("cpu") {
    const auto found = file.metadata().find(network_layers_entry);
    const nlohmann::json layers = json_or_nothing(found == file.metadata().end() ? "" : found->second);
    if (!layers.is_object() || !layers.contains(""))
      fail(Code::data, "{}: its metadata {} is no object of ranks and alphas", file.path().string(),
           network_layers_entry);
    for (const auto& [module, numbers] : layers.items()) {
      if (!numbers.is_array() || numbers.size() != 2 || !numbers[0].is_number_integer() || !numbers[1].is_number())
        fail(Code::data, "{}: its metadata {} has {} for '{}', expected [rank, alpha]", file.path().string(),
             network_layers_entry, numbers.dump(), module);
      layers_[module] = {numbers[0], numbers[1]};
    }
  }

  std::string name() const override { return fmt::format("adapter '{}'", adapter_.id()); }

  std::map<std::string, Shape> tensors(const std::string& module, const Shape& weight) const override {
    const AdapterLayer layer = layer_of(module, weight);
    const AdapterForm form = adapter_.form(layer);
    if (form.kind == AdapterForm::Kind::none) return {};
    std::map<std::string, Shape> all;
    for (const AdapterTensorSpec& tensor : adapter_.tensors(layer)) all[tensor.key] = tensor.shape;
    if (form.from_start)
      for (auto& [key, shape] : all) {
        const int64_t axis = key == adapter_.tensors(layer)[0].key ? 0 : 1;
        shape = shape.with(axis, 2 * shape[axis]);
      }
    return all;
  }

  bool changes_bias(const std::string& module, const Shape& weight) const override {
    return adapter_.form(layer_of(module, weight)).kind == AdapterForm::Kind::output;
  }

  void change_weight(const std::string& module, const Shape& weight, const NamedTensors& tensors, double strength,
                     std::span<float> values) const override {
    const AdapterLayer layer = layer_of(module, weight);
    const AdapterForm form = adapter_.form(layer);
    const std::lock_guard one(mutex_);
    switch (form.kind) {
      case AdapterForm::Kind::none: return;
      case AdapterForm::Kind::pair: return add_pair(layer, strength * form.scale, tensors, values);
      case AdapterForm::Kind::weight: return blend(values, new_weight(layer, tensors, values), strength);
      case AdapterForm::Kind::output: return blend(values, weight_of_outputs(layer, tensors, values), strength);
    }
  }

  // What the layer gives for zeros.
  void change_bias(const std::string& module, const Shape& weight, const NamedTensors& tensors, double strength,
                   std::span<float> values) const override {
    const AdapterLayer layer = layer_of(module, weight);
    const std::lock_guard one(mutex_);
    HostTensor y(Desc{DType::f32, y_shape(layer, 1)});
    for (size_t i = 0; i < y.as<float>().size(); ++i) y.as<float>()[i] = values[i % values.size()];
    const HostTensor made = outputs(layer, tensors, HostTensor(Desc{DType::f32, x_shape(layer, 1)}), y);
    blend(values, made.as<float>().first(values.size()), strength);
  }

 private:
  static GivenOptions options_of(const WeightFile& file) {
    const auto found = file.metadata().find(network_options_entry);
    const std::string text = found == file.metadata().end() ? "{}" : found->second;
    return parse_config("network: {network_kwargs: " + text + "}\n", file.path().string(),
                        {.model = false, .datasets = false})
        .network.network_kwargs;
  }

  AdapterLayer layer_of(const std::string& module, const Shape& weight) const {
    const auto own = layers_.find(module);
    const auto& [rank, alpha] = own == layers_.end() ? layers_.at("") : own->second;
    return {.module = module, .weight = weight, .rank = rank, .alpha = alpha};
  }

  static void blend(std::span<float> values, std::span<const float> wanted, double strength) {
    const auto share = static_cast<float>(strength);
    for (size_t i = 0; i < values.size(); ++i) values[i] += share * (wanted[i] - values[i]);
  }

  // W + factor up down: up [out, r], down [r, in kh kw].
  void add_pair(const AdapterLayer& layer, double factor, const NamedTensors& tensors, std::span<float> values) const {
    const std::vector<AdapterTensorSpec> specs = adapter_.tensors(layer);
    const HostTensor &down = tensors.at(specs[0].key), &up = tensors.at(specs[1].key);
    const auto rank = static_cast<size_t>(down.desc.shape[0]), columns = down.as<float>().size() / rank;
    for (size_t o = 0; o < static_cast<size_t>(layer.weight[0]); ++o)
      for (size_t k = 0; k < rank; ++k) {
        const auto b = static_cast<float>(factor * up.as<float>()[o * rank + k]);
        for (size_t i = 0; i < columns; ++i) values[o * columns + i] += b * down.as<float>()[k * columns + i];
      }
  }

  // A graph of the layer's tensors and `more` inputs, and what `build` makes of them.
  HostTensor run(const AdapterLayer& layer, const NamedTensors& tensors, const NamedTensors& more,
                 const std::function<Value(Graph&, const AdapterRule::Values&)>& build) const {
    Graph graph(DType::f32);
    NamedTensors all = tensors;
    all.insert(more.begin(), more.end());
    AdapterRule::Values given;
    for (const auto& [name, tensor] : all) given[name] = graph.add_input(name, tensor.desc);
    auto inputs = std::exchange(graph.inputs, {});
    const Value result = build(graph, given);
    if (!graph.inputs.empty())
      fail(Code::plugin, "{}: {} asks for '{}', which there is not where it is merged", layer.module, name(),
           graph.inputs.begin()->first);
    graph.inputs = std::move(inputs);
    graph.outputs = {{"result", result}};
    settle_layouts(graph);
    OwnedProgram program(device_, std::move(graph), {}, "merging an adapter");
    for (const auto& [name, tensor] : all) program->set_input(name, tensor);
    program->run();
    return program->output("result");
  }

  std::vector<float> new_weight(const AdapterLayer& layer, const NamedTensors& tensors,
                                std::span<const float> weight) const {
    const HostTensor made = run(layer, tensors, {{"weight", HostTensor::from_floats(layer.weight, weight)}},
                                [&](Graph& g, const auto& given) { return adapter_.build_weight(g, layer, given, 0); });
    return {made.as<float>().begin(), made.as<float>().end()};
  }

  HostTensor outputs(const AdapterLayer& layer, const NamedTensors& tensors, const HostTensor& x,
                     const HostTensor& y) const {
    return run(layer, tensors, {{"x", x}, {"y", y}},
               [&](Graph& g, const auto& given) { return adapter_.build_output(g, layer, given, 0); });
  }

  // Inputs that are 0 but for one number are all that is needed to see the weight of a layer: of a linear [1, count,
  // in], of a convolution of stride 1 images [count, 2 kh - 1, 2 kw - 1, in], whose outputs are [count, kh, kw, out].
  static Shape x_shape(const AdapterLayer& layer, int64_t count) {
    const Shape& w = layer.weight;
    return layer.is_conv() ? Shape{count, 2 * w[2] - 1, 2 * w[3] - 1, w[1]} : Shape{1, count, w[1]};
  }
  static Shape y_shape(const AdapterLayer& layer, int64_t count) {
    const Shape& w = layer.weight;
    return layer.is_conv() ? Shape{count, w[2], w[3], w[0]} : Shape{1, count, w[0]};
  }
  // The weight that a layer with these outputs has: F(x, W x) - F(0, 0) for every such x.
  std::vector<float> weight_of_outputs(const AdapterLayer& layer, const NamedTensors& tensors,
                                       std::span<const float> weight) const {
    const Shape& w = layer.weight;
    const auto out = static_cast<size_t>(w[0]), in = static_cast<size_t>(w[1]), taps = weight.size() / (out * in);
    const HostTensor none = outputs(layer, tensors, HostTensor(Desc{DType::f32, x_shape(layer, 1)}),
                                    HostTensor(Desc{DType::f32, y_shape(layer, 1)}));
    std::vector<float> made(weight.size());
    for (size_t first = 0; first < in; first += impulses_at_once) {
      const size_t count = std::min(in - first, impulses_at_once);
      HostTensor x(Desc{DType::f32, x_shape(layer, static_cast<int64_t>(count))});
      HostTensor y(Desc{DType::f32, y_shape(layer, static_cast<int64_t>(count))});
      const size_t pixels = x.as<float>().size() / (count * in);  // odd, with the impulse in the middle
      const auto element = [&](size_t c, size_t tap, size_t o) { return (c * taps + taps - 1 - tap) * out + o; };
      const auto each = [&](auto&& action) {
        for (size_t o = 0; o < out; ++o)
          for (size_t c = 0; c < count; ++c)
            for (size_t tap = 0; tap < taps; ++tap)
              action(((o * in) + first + c) * taps + tap, element(c, tap, o), element(0, tap, o));
      };
      for (size_t c = 0; c < count; ++c) x.as<float>()[(c * pixels + pixels / 2) * in + first + c] = 1;
      each([&](size_t at, size_t to, size_t) { y.as<float>()[to] = weight[at]; });
      const HostTensor given = outputs(layer, tensors, x, y);
      each([&](size_t at, size_t from, size_t zero) { made[at] = given.as<float>()[from] - none.as<float>()[zero]; });
      if (first == 0) require_linear(layer, tensors, x, y, given, none);
    }
    return made;
  }

  // Twice the input has to give twice the output.
  void require_linear(const AdapterLayer& layer, const NamedTensors& tensors, HostTensor x, HostTensor y,
                      const HostTensor& once, const HostTensor& none) const {
    for (HostTensor* t : {&x, &y})
      for (float& v : t->as<float>()) v *= 2;
    const HostTensor twice = outputs(layer, tensors, x, y);
    double error = 0, size = 0;
    for (size_t i = 0; i < twice.as<float>().size(); ++i) {
      const double zero = none.as<float>()[i % none.as<float>().size()], one = once.as<float>()[i] - zero;
      error += std::pow(twice.as<float>()[i] - zero - 2 * one, 2);
      size += one * one;
    }
    if (error > 1e-6 * size)
      fail(Code::data,
           "{}: {} makes outputs that are no linear function of the input: no weight gives them, so they "
           "cannot be merged",
           layer.module, name());
  }

  Adapter adapter_;
  mutable Device device_;
  mutable std::mutex mutex_;  // one graph at a time
  std::map<std::string, std::pair<int64_t, double>> layers_;
};

}  // namespace

std::shared_ptr<const ForeignLora> plugin_lora(const Registry& registry, const WeightFile& file) {
  if (!is_foreign(file)) return nullptr;
  const std::string& id = file.metadata().at(network_entry);
  try {
    return std::make_shared<PluginLora>(registry, file, id);
  } catch (const Error& error) {
    fail(Code::data,
         "{}: it holds tensors of the adapter '{}' of a plugin: {}. Give the plugin's folder with --plugin-dir",
         file.path().string(), id, error.what());
  }
}

}  // namespace lh
