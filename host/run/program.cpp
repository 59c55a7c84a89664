#include "run/program.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "core/error.h"
#include "core/log.h"
#include "graph/op.h"

namespace lh {
namespace {

struct OpTime {
  int64_t calls = 0;
  double seconds = 0;
};
std::map<std::string, OpTime>& op_times() {
  static std::map<std::string, OpTime> times;
  return times;
}

}  // namespace

Program::Program(Device& device, Graph graph, Plan plan, std::byte* arena, const Externals& externals)
    : device_(device), graph_(std::move(graph)), plan_(std::move(plan)), address_(graph_.value_count() + 1, nullptr) {
  for (const auto& [value, data] : externals) address_[value.id] = data;
  for (const PlannedBuffer& b : plan_.buffers) address_[b.value.id] = arena + b.offset;
  for (uint32_t id = 1; id < address_.size(); ++id)
    if (address_[id] == nullptr) address_[id] = address_[plan_.root[id]];
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    if (node.op->alias) {
      if (address_[node.outputs[0].id] == address_[node.inputs[0].id]) continue;
      fail(Code::internal, "{}: an alias cannot be bound to memory of its own", graph_.describe(node));
    }
    Step step{n, {}, {}};
    for (const Value in : node.inputs) {
      step.in.push_back(in ? tensor(in) : lk_tensor{});
      if (in && step.in.back().data == nullptr)
        fail(Code::internal, "{}: input '{}' has no memory", graph_.describe(node), graph_.info(in).name);
    }
    for (const Value out : node.outputs) step.out.push_back(tensor(out));
    steps_.push_back(std::move(step));
  }
  upload_constants();
}

lk_tensor Program::tensor(Value v) const { return kernel_tensor(graph_.desc(v), address_[v.id]); }

void Program::upload_constants() {
  for (uint32_t id = 1; id < address_.size(); ++id) {
    const ValueInfo& info = graph_.info(Value{id});
    if (info.kind != ValueKind::constant) continue;
    device_.check(lk_upload(device_.context(), address_[id], info.constant.data.data(),
                            static_cast<int64_t>(info.constant.data.size())),
                  "upload of a constant");
  }
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

void Program::run(const Probe& after) {
  const bool dispatch = verbose("dispatch"), time = verbose("time");
  for (Step& step : steps_) {
    const Node& node = graph_.nodes[step.node];
    if (dispatch) spdlog::info("dispatch: {}", graph_.describe(node));
    const auto start = std::chrono::steady_clock::now();
    const lk_status status = node.op->launch({device_.context(), step.in, step.out, node.attrs});
    if (status != LK_OK) device_.check(status, graph_.describe(node));
    if (time) {
      device_.check(lk_synchronize(device_.context()), "synchronize");
      OpTime& t = op_times()[node.op->name];
      ++t.calls;
      t.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (after) after(node, step.out);
  }
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

void print_op_times() {
  std::vector<std::pair<std::string, OpTime>> rows(op_times().begin(), op_times().end());
  std::ranges::sort(rows, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double total = 0;
  for (const auto& [name, t] : rows) total += t.seconds;
  for (const auto& [name, t] : rows)
    spdlog::info("time: {:<28} {:>8} calls {:>10.3f} ms {:>5.1f}%", name, t.calls, 1e3 * t.seconds,
                 100 * t.seconds / std::max(total, 1e-12));
}

}  // namespace lh
