#include "run/predict.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "ops/lora_group.h"
#include "ops/ops.h"
#include "run/flops.h"

namespace lh {
namespace {

// Shares of a device's rates that the kernels reach, from nine steps of seven models on an H200 (docs/memory.md).
constexpr double product_share = 0.85, memory_share = 0.7, link_share = 0.95;
// Attention's products are as narrow as its heads.
constexpr int64_t wide_head = 128;  // channels
constexpr double wide_attention_share = 0.75, wide_attention_backward_share = 0.7;
constexpr double narrow_attention_share = 0.65, narrow_attention_backward_share = 0.58;
constexpr double start = 10e-6;  // seconds that an operation of a recorded step takes beside its work
// And more where copies of other queues are in the step: 7900 short operations took 10 to 13 ms longer.
constexpr double start_beside_copies = 1.3e-6;

// Bytes that a node reads and writes. Pieces that lie within what they are cut from or joined to are not moved.
double bytes_of(const Graph& graph, const Plan& plan, const Node& node) {
  double bytes = 0;
  const auto moved = [&](Value v) {
    const bool in_place = std::ranges::any_of(
        node.outputs, [&](Value out) { return out != v && plan.views[out.id].root == plan.views[v.id].root; });
    return !in_place;
  };
  for (const Value in : node.inputs)
    if (in && moved(in)) bytes += static_cast<double>(graph.desc(in).bytes());
  for (const Value out : node.outputs) {
    const bool within = std::ranges::any_of(
        node.inputs, [&](Value in) { return in && plan.views[in.id].root == plan.views[out.id].root; });
    if (!within) bytes += static_cast<double>(graph.desc(out).bytes());
  }
  return bytes;
}

// What a product of 8 bits rounds: x, or each dy.
std::vector<Value> rounded_rows(const Node& node) {
  if (node.op != &lora_group_backward_op) return {node.inputs[0]};
  std::vector<Value> rows;
  for (size_t i = 0; i < LoraGroup::backward_layers(node.inputs.size()); ++i)
    rows.push_back(node.inputs[LoraGroup::at(i, LoraGroup::DY)]);
  return rows;
}

// Weights in 8 or 4 bits are written out in the type that is computed in before their product reads them. For a product
// of 8 bits the other operand is rounded instead, and backward the weight is turned.
double prepared_bytes(const Graph& graph, const Node& node) {
  double bytes = 0;
  if (products_of(node.attrs) != LK_PRODUCTS_WIDE) {
    for (const Value v : rounded_rows(node)) {
      const Desc& rows = graph.desc(v);
      bytes += static_cast<double>(rows.bytes() + rows.shape.numel());
    }
    if (node.op == &lora_backward_op || node.op == &linear_backward_op || node.op == &lora_group_backward_op)
      for (const Value in : node.inputs)
        if (in && is_quantised(graph.desc(in).dtype)) bytes += 2.0 * static_cast<double>(graph.desc(in).bytes());
    return bytes;
  }
  for (const Value in : node.inputs)
    if (in && is_quantised(graph.desc(in).dtype))
      bytes += 2.0 * static_cast<double>(graph.desc(in).shape.numel() * dtype_size(graph.compute));
  return bytes;
}

double share_of(const Graph& graph, const Node& node) {
  const bool forward = node.op == &attention_op;
  if (!forward && node.op != &attention_backward_op) return product_share;
  if (graph.desc(node.inputs[forward ? 0 : 1]).shape[3] < wide_head)
    return forward ? narrow_attention_share : narrow_attention_backward_share;
  return forward ? wide_attention_share : wide_attention_backward_share;
}

}  // namespace

double predicted_seconds(const Graph& graph, const Plan& plan, const Node& node, const Rates& rates) {
  if (node.op->alias || is_transfer(node)) return 0;
  const double bytes = bytes_of(graph, plan, node);
  if (bytes == 0) return 0;
  const bool eight_bit = rates.eight_bit > 0 && products_of(node.attrs) != LK_PRODUCTS_WIDE;
  const double rate = eight_bit ? rates.eight_bit : rates.products;
  return std::max(flops(graph, node) / (share_of(graph, node) * rate), bytes / (memory_share * rates.memory)) +
         prepared_bytes(graph, node) / (memory_share * rates.memory) + start;
}

double copy_seconds(int64_t bytes, const Rates& rates) {
  return 2.0 * static_cast<double>(bytes) / (memory_share * rates.memory) + start;
}

double link_seconds(int64_t bytes, const Rates& rates) {
  return static_cast<double>(bytes) / (link_share * rates.link);
}

PredictedTime predict(const Graph& graph, const Plan& plan, const Rates& rates) {
  PredictedTime time;
  const double longer = std::ranges::any_of(graph.nodes, is_transfer) ? start_beside_copies : 0;
  double there_free = 0, back_free = 0;  // each way of the link
  std::map<uint32_t, double> arrival;    // by storage
  auto side = plan.side_by_side.begin();
  double along = 0, aside = 0;  // of what is side by side
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto here = static_cast<int64_t>(n);
    if (node.op == &fetch_op || node.op == &offload_op) {
      const double takes = link_seconds(graph.desc(node.outputs[0]).bytes(), rates);
      double& link_free = node.op == &fetch_op ? there_free : back_free;
      link_free = std::max(link_free, time.seconds) + takes;
      time.sending += takes;
      arrival[plan.views[node.outputs[0].id].root] = link_free;
      continue;
    }
    for (const Value in : node.inputs)
      if (const auto found = arrival.find(plan.views[in.id].root); in && found != arrival.end()) {
        const double wait = std::max(0.0, found->second - time.seconds);
        time.waiting += wait;
        time.seconds += wait;
        arrival.erase(found);
      }
    double takes = predicted_seconds(graph, plan, node, rates);
    takes += takes > 0 ? longer : 0;
    const bool beside = side != plan.side_by_side.end() && here >= side->first;
    if (beside && std::ranges::binary_search(side->aside, here)) {
      aside += takes;
    } else {
      time.seconds += takes;
      along += beside ? takes : 0;
    }
    if (!beside || here < side->last) continue;
    time.seconds += std::max(0.0, aside - along);
    along = aside = 0;
    ++side;
  }
  return time;
}

namespace {

// Seconds of one, from the fastest row of several: as in a step, none waits for its launch. A device that idled takes a
// part of a second to come to its clock. On a CPU nothing is launched, and a row of one does.
template <class Work>
double least_seconds(Device& device, const Work& work) {
  constexpr int least_rows = 4;
  const int row = device.is_cpu() ? 1 : 8;
  const double long_enough = device.is_cpu() ? 0.05 : 0.2;
  const Event start(device), end(device);
  double best = 1e30, spent = 0;
  work();  // which looks for an algorithm
  for (int i = 0; i < least_rows || spent < long_enough; ++i) {
    start.record(LK_COMPUTE);
    for (int k = 0; k < row; ++k) work();
    end.record(LK_COMPUTE);
    device.synchronize();
    const double seconds = end.seconds_since(start);
    spent += std::max(seconds, 1e-6);
    best = std::min(best, seconds / row);
  }
  return std::max(best, 1e-9);
}

// FLOP a second of the product of n x n matrices that `multiply` starts.
double square_rate(Device& device, int64_t n, const std::function<lk_status()>& multiply) {
  const auto side = static_cast<double>(n);
  return 2.0 * side * side * side / least_seconds(device, [&] { device.check(multiply(), "matrix product"); });
}

}  // namespace

double product_rate(Device& device, DType dtype, int64_t n) {
  const Desc desc{dtype, {n, n}};
  const DeviceMemory memory(device, 3 * desc.bytes(), "matrix product");
  const auto matrix = [&](int64_t i) { return kernel_tensor(desc, memory.data() + i * desc.bytes()); };
  for (int64_t i = 0; i < 2; ++i) {
    const lk_random_normal_params fill{.y = matrix(i), .scale = 1, .seed = 1, .stream = static_cast<uint64_t>(i)};
    device.check(lk_random_normal(device.context(), &fill), "matrix product");
  }
  const lk_matmul_params product{.a = matrix(0), .b = matrix(1), .c = matrix(2), .transpose_a = 0, .transpose_b = 0};
  return square_rate(device, n, [&] { return lk_matmul(device.context(), &product); });
}

double product_rate(Device& device, DType compute, lk_products products, int64_t n) {
  const Desc wide{compute, {n, n}}, narrow{products == LK_PRODUCTS_I8 ? DType::i8 : DType::f8_e4m3, {n, n}};
  const DeviceMemory memory(device, 2 * wide.bytes() + narrow.bytes(), "matrix product");
  const auto matrix = [&](int64_t i) { return kernel_tensor(wide, memory.data() + i * wide.bytes()); };
  const lk_random_normal_params fill{.y = matrix(0), .scale = 1, .seed = 1, .stream = 0};
  device.check(lk_random_normal(device.context(), &fill), "matrix product");
  std::vector<std::byte> some(static_cast<size_t>(n * n));  // of fp8 between 1/8 and 2
  for (size_t i = 0; i < some.size(); ++i) some[i] = static_cast<std::byte>(0x20 + i * 7 % 32);
  memory.upload(2 * wide.bytes(), some.data(), n * n);
  const lk_linear_params product{.x = matrix(0),
                                 .weight = kernel_tensor(narrow, memory.data() + 2 * wide.bytes()),
                                 .weight_scale = {},
                                 .bias = {},
                                 .y = matrix(1),
                                 .products = products};
  return square_rate(device, n, [&] { return lk_linear(device.context(), &product); });
}

Rates rates_of(Device& device, DType compute, int64_t room, lk_products products) {
  if (device.is_cpu()) return usual_rates;
  constexpr int64_t least = 256;
  const auto product_bytes = [&](int64_t n) { return 3 * n * n * dtype_size(compute); };
  // Where there is no room, nothing fits either, and any rates do to say what is missing.
  if (product_bytes(least) > room) return {.products = 5e13, .memory = 3e11, .link = 1e10};
  int64_t n = 4096;
  while (n > least && product_bytes(n) > room) n /= 2;
  const int64_t bytes = std::min<int64_t>(64 << 20, room / 4);
  Rates rates{.products = product_rate(device, compute, n)};
  if (products != LK_PRODUCTS_WIDE) rates.eight_bit = product_rate(device, compute, products, n);
  const DeviceMemory memory(device, 2 * bytes, "measuring copies");
  const StagingMemory host(device, bytes);
  std::ranges::fill(std::span(host.data(), static_cast<size_t>(bytes)), std::byte{1});
  const auto copy = [&](const std::byte* from) {
    device.check(lk_copy_async(device.context(), LK_COMPUTE, memory.data() + bytes, from, bytes), "measuring copies");
  };
  const auto size = static_cast<double>(bytes);
  rates.memory = 2 * size / least_seconds(device, [&] { copy(memory.data()); });
  rates.link = size / least_seconds(device, [&] { copy(host.data()); });
  return rates;
}

}  // namespace lh
