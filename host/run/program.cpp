// Binds addresses and launches nodes in order.
#include "run/program.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "graph/op.h"
#include "ops/ops.h"
#include "run/branching.h"
#include "run/shared_weights.h"

namespace lh {
Program::Program(Device& device, Graph graph, Plan plan, std::byte* arena, const Externals& externals)
    : device_(device), graph_(std::move(graph)), plan_(std::move(plan)), address_(graph_.value_count() + 1, nullptr) {
  for (const auto& [value, data] : externals) address_[value.id] = data;
  for (const PlannedBuffer& b : plan_.buffers) address_[b.value.id] = arena + b.offset;
  constants_ = DeviceMemory(device, constant_bytes(graph_), "constants");
  int64_t offset = 0;
  for (uint32_t id = 1; id < address_.size(); ++id) {
    ValueInfo& info = graph_.info(Value{id});
    if (info.kind != ValueKind::constant) continue;
    address_[id] = constants_.data() + offset;
    constants_.upload(offset, info.constant.data.data(), info.desc.bytes());
    offset += placed_bytes(info.desc.bytes());
    info.constant = {};  // the device has it
  }
  for (uint32_t id = 1; id < address_.size(); ++id)
    if (const View& view = plan_.views[id]; address_[id] == nullptr && address_[view.root] != nullptr)
      address_[id] = static_cast<std::byte*>(address_[view.root]) + view.offset;
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    if (node.op->alias) {
      if (address_[node.outputs[0].id] == address_[node.inputs[0].id]) continue;
      fail(Code::internal, "{}: an alias cannot be bound to memory of its own", graph_.describe(node));
    }
    const SharedWeights* const shared = device_.shared_weights();
    if (node.op == &offer_op && (shared == nullptr || shared->reaches())) continue;
    Step step{n, {}, {}};
    for (const Value in : node.inputs) {
      step.in.push_back(in ? tensor(in) : lk_tensor{});
      if (in && step.in.back().data == nullptr)
        fail(Code::internal, "{}: input '{}' has no memory", graph_.describe(node), graph_.info(in).name);
    }
    for (const Value out : node.outputs) step.out.push_back(tensor(out));
    steps_.push_back(std::move(step));
  }
  order_transfers();
}

// By storage: what reads a copy may read it in another shape, or joined to others.
void Program::order_transfers() {
  std::map<uint32_t, std::vector<Transfer*>> on_their_way;
  for (Step& step : steps_) {
    const Node& node = graph_.nodes[step.node];
    for (const Value in : node.inputs)
      if (const auto found = on_their_way.find(plan_.views[in.id].root); in && found != on_their_way.end()) {
        step.awaits.insert(step.awaits.end(), found->second.begin(), found->second.end());
        on_their_way.erase(found);
      }
    if (!is_transfer(node) || node.op == &landed_op) continue;
    step.shared = node.op != &offload_op && graph_.info(node.inputs[0]).kind == ValueKind::param;
    step.sends = transfers_.emplace_back(std::make_unique<Transfer>(device_)).get();
    const Value what = node.op == &offer_op ? node.inputs[0] : node.outputs[0];
    on_their_way[plan_.views[what.id].root].push_back(step.sends);
  }
}

lk_tensor Program::tensor(Value v) const {
  lk_tensor t = kernel_tensor(graph_.desc(v), address_[v.id]);
  set_strides(plan_.views[v.id], t);
  return t;
}

void Program::set_input(const std::string& name, const HostTensor& given) {
  const auto it = graph_.inputs.find(name);
  if (it == graph_.inputs.end()) fail(Code::internal, "the graph has no input '{}'", name);
  const Desc& want = graph_.desc(it->second);
  if (given.desc.shape != want.shape)
    fail(Code::internal, "input '{}' is {}, expected {}", name, given.desc.text(), want.text());
  const auto upload = [&](const HostTensor& tensor) {
    device_.check(lk_upload(device_.context(), address_[it->second.id], tensor.data.data(), want.bytes()), name);
  };
  if (given.desc.dtype == want.dtype)
    upload(given);
  else
    upload(converted(given, want.dtype));
}

void Program::launch(Step& step) {
  const Node& node = graph_.nodes[step.node];
  for (const Transfer* transfer : step.awaits) transfer->there.hold(LK_COMPUTE);
  SharedWeights* const shared = step.shared ? device_.shared_weights() : nullptr;
  const Device& sender = shared != nullptr ? shared->sender() : device_;
  const lk_queue queue = shared != nullptr ? shared->queue() : node.op == &offload_op ? LK_RETURN : LK_TRANSFER;
  if (step.sends != nullptr) {
    step.sends->begin.record(LK_COMPUTE);
    step.sends->begin.hold(sender, queue);
  }
  if (shared != nullptr) {
    const auto* const kept = static_cast<const std::byte*>(step.in[0].data);
    const int64_t bytes = lk_tensor_bytes(&step.in[0]);
    if (node.op == &offer_op)
      shared->offer(kept, bytes);
    else
      shared->bring(kept, static_cast<std::byte*>(step.out[0].data), bytes);
  } else if (const lk_status status = node.op->launch({device_.context(), step.in, step.out, node.attrs});
             status != LK_OK) {
    device_.check(status, graph_.describe(node));
  }
  if (step.sends != nullptr) step.sends->there.record(sender, queue);
}

// Side by side only when recorded: what runs first times algorithms, which others beside them would disturb.
void Program::record() {
  Branching branching(device_, plan_.side_by_side);
  for (Step& step : steps_) {
    branching.before(static_cast<int64_t>(step.node));
    launch(step);
  }
  branching.join();
}

void Program::run(const Probe& after) {
  if (device_.is_recording() && !after) return record();
  const bool dispatch = verbose("dispatch");
  for (Step& step : steps_) {
    const Node& node = graph_.nodes[step.node];
    if (device_.is_cpu()) check_hurry();  // a GPU is through in a moment
    // The device tells the rest and waits for each operation, so that what the last line names is what failed.
    if (dispatch) log_info("dispatch: {}", graph_.describe(node));
    launch(step);
    if (after) after(node, step.out);
  }
}

std::map<std::string, Program::OpTime> Program::time_ops() {
  std::vector<std::unique_ptr<Event>> places;
  const auto record = [&] {
    places.push_back(std::make_unique<Event>(device_));
    places.back()->record(LK_COMPUTE);
  };
  record();
  for (Step& step : steps_) {
    launch(step);
    record();
  }
  device_.synchronize();
  std::map<std::string, OpTime> times;
  for (size_t i = 0; i < steps_.size(); ++i) {
    OpTime& time = times[graph_.nodes[steps_[i].node].op->name];
    ++time.calls;
    time.seconds += places[i + 1]->seconds_since(*places[i]);
  }
  return times;
}

HostTensor Program::output(const std::string& name) const {
  const auto it = graph_.outputs.find(name);
  if (it == graph_.outputs.end()) fail(Code::internal, "the graph has no output '{}'", name);
  HostTensor out(graph_.desc(it->second));
  device_.check(lk_download(device_.context(), out.data.data(), address_[it->second.id], out.desc.bytes()), name);
  return out;
}

OwnedProgram::OwnedProgram(Device& device, Graph graph, const Externals& externals, std::string_view what) {
  std::set<Value> external;
  for (const auto& [value, data] : externals) external.insert(value);
  Plan plan = plan_memory(graph, external);
  arena_ = DeviceMemory(device, plan.bytes, what);
  program_ = std::make_unique<Program>(device, std::move(graph), std::move(plan), arena_.data(), externals);
}

void print(const std::map<std::string, Program::OpTime>& times) {
  std::vector<std::pair<std::string, Program::OpTime>> rows(times.begin(), times.end());
  std::ranges::sort(rows, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double total = 0;
  for (const auto& [name, t] : rows) total += t.seconds;
  for (const auto& [name, t] : rows)
    log_info("time: {:<28} {:>6} calls {:>10.3f} ms {:>5.1f}%", name, t.calls, 1e3 * t.seconds,
             100 * t.seconds / std::max(total, 1e-12));
}

}  // namespace lh
