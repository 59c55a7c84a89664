#include "compile/norm_limit.h"

#include <algorithm>

#include "core/error.h"
#include "ops/ops.h"

namespace lh {
namespace {

constexpr const char* names[] = {"down", "up"};

// A matrix as it lies in memory: [first axis, all others]. The order of the others does not change a norm.
Shape matrix(const Shape& shape) { return {shape[0], shape.numel() / shape[0]}; }

Graph limit_graph(const Shape& down_shape, const Shape& up_shape, double scale, double limit) {
  Graph g(DType::f32);
  const auto emit = [&](const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return g.add(op, std::move(in), std::move(attrs), 0)[0];
  };
  const auto number = [&](double v) {
    const auto value = static_cast<float>(v);
    return g.add_constant(HostTensor::from_floats({1, 1}, std::span(&value, 1)));
  };
  const Value down = g.add_param(names[0], {DType::f32, down_shape}),
              up = g.add_param(names[1], {DType::f32, up_shape});
  // |up down|^2 is the sum of the product of up^T up and down down^T, element by element.
  const Value inputs = emit(matmul_op, {down, down}, {{"transpose_a", int64_t{0}}, {"transpose_b", int64_t{1}}});
  const Value outputs = emit(matmul_op, {up, up}, {{"transpose_a", int64_t{1}}, {"transpose_b", int64_t{0}}});
  const Value square = emit(sum_op, {emit(mul_op, {inputs, outputs})}, {{"axes", std::vector<int64_t>{0, 1}}});
  const Value norm =
      emit(sqrt_op, {emit(affine_op, {emit(max_op, {square, number(0)})}, {{"scale", scale * scale}, {"shift", 0.0}})});
  const Value ratio = emit(div_op, {number(limit), emit(max_op, {norm, number(limit)})});
  const Value factor = emit(sqrt_op, {ratio});
  g.outputs[names[0]] = emit(mul_op, {down, factor});
  g.outputs[names[1]] = emit(mul_op, {up, factor});
  return g;
}

}  // namespace

NormLimit::NormLimit(const Adapters& adapters, double limit) {
  const std::vector<AdaptedModule>& all = adapters.adapted();
  for (size_t m = 0; m < all.size(); ++m) {
    if (all[m].form.from_start)
      fail(
          Code::config,
          "network.scale_weight_norms: the adapter of {} begins with factors of the weight, which it would scale down. "
          "Remove it, or network_kwargs.init",
          all[m].name);
    if (all[m].tensors.size() != 2 || !all[m].value(down_key) || !all[m].value(up_key))
      fail(Code::config,
           "network.scale_weight_norms: the adapter of {} is not made of two matrices; it is for network.type lora and "
           "locon without a core or norms",
           all[m].name);
    const size_t first = adapters.first_tensor(m);
    const Shape &down = adapters.tensors()[first].shape, &up = adapters.tensors()[first + 1].shape;
    graphs_.push_back(limit_graph(matrix(down), matrix(up), all[m].alpha / static_cast<double>(down[0]), limit));
    const std::set<Value> external = parameters(graphs_.back());
    plans_.push_back(plan_memory(graphs_.back(), external));
  }
}

std::vector<PlannedGraph> NormLimit::graphs() const {
  std::vector<PlannedGraph> planned;
  for (size_t m = 0; m < graphs_.size(); ++m) planned.push_back({&graphs_[m], &plans_[m]});
  return planned;
}

void NormLimit::bind(Device& device, const Adapters& adapters, std::byte* arena) {
  device_ = &device;
  for (size_t m = 0; m < graphs_.size(); ++m) {
    Module& module = modules_.emplace_back();
    Externals externals;
    void* storage[2];
    for (size_t i = 0; i < 2; ++i) {
      storage[i] = adapters.at("p", adapters.tensors()[adapters.first_tensor(m) + i]);
      externals[graphs_[m].params.at(names[i])] = storage[i];
    }
    module.program = std::make_unique<Program>(device, graphs_[m], plans_[m], arena, externals);
    for (size_t i = 0; i < 2; ++i) {
      const lk_tensor from = module.program->tensor(graphs_[m].outputs.at(names[i]));
      module.copies.emplace_back(from, kernel_tensor(graphs_[m].desc(graphs_[m].params.at(names[i])), storage[i]));
    }
  }
}

void NormLimit::run() {
  for (Module& module : modules_) {
    module.program->run();
    for (const auto& [from, to] : module.copies) {
      const lk_cast_params copy{.x = from, .y = to};
      device_->check(lk_cast(device_->context(), &copy), "limit of norms");
    }
  }
}

}  // namespace lh
