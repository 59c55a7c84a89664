// Creates the rule with the user's options and checks the graphs that it builds.
#include "plugin/optimizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "graph/op.h"
#include "passes/layout.h"
#include "plugin/services.h"

namespace lh {
namespace {

constexpr uint32_t most_passes = 8, most_states = 64;
const Desc number{DType::f32, {1}};

// A parameter for a callback; its texts are the Parameter's.
lh_parameter abi_of(const Parameter& p) {
  return {.struct_size = sizeof(lh_parameter),
          .role = p.role,
          .name = p.name.c_str(),
          .module = p.module.c_str(),
          .rank = p.rank,
          .group = p.group,
          .desc = to_abi({DType::f32, p.shape})};
}

// What a graph may ask for and give.
struct Allowed {
  std::map<std::string, Desc> inputs, outputs;
  bool reductions = false, scalars = false;  // may be given, under names of the rule's choice
};

std::string names_of(const std::map<std::string, Desc>& tensors) {
  std::string names;
  for (const auto& [name, tensor] : tensors) names += (names.empty() ? "" : ", ") + name;
  return names;
}

void check_graph(const Call& call, const Graph& graph, const Allowed& allowed) {
  for (const auto& [name, value] : graph.inputs) {
    const auto want = allowed.inputs.find(name);
    if (want == allowed.inputs.end())
      call.wrong(fmt::format("asks for the input '{}', which this graph does not have. It has {}", name,
                             names_of(allowed.inputs)));
    if (graph.desc(value) != want->second)
      call.wrong(fmt::format("declares the input '{}' as {}, expected {}", name, graph.desc(value).text(),
                             want->second.text()));
  }
  for (const auto& [name, value] : graph.outputs) {
    const Desc& got = graph.desc(value);
    if (const auto want = allowed.outputs.find(name); want != allowed.outputs.end()) {
      if (got != want->second)
        call.wrong(fmt::format("gives '{}' as {}, expected {}", name, got.text(), want->second.text()));
    } else if (is_reduction(name) && allowed.reductions) {
      if (got.dtype != DType::f32) call.wrong(fmt::format("gives '{}' as {}, expected float32", name, got.text()));
    } else if (!is_reduction(name) && allowed.scalars && !allowed.inputs.contains(name)) {
      if (got != number) call.wrong(fmt::format("gives '{}' as {}, expected {}", name, got.text(), number.text()));
    } else {
      call.wrong(fmt::format("gives '{}', which is no result of this graph. Results are {}{}", name,
                             names_of(allowed.outputs), allowed.reductions ? ", sum.<x> and max.<x>" : ""));
    }
  }
}

}  // namespace

bool is_reduction(const std::string& name) { return name.starts_with(sum_prefix) || name.starts_with(max_prefix); }

Optimizer::Optimizer(const Registry& registry, const std::string& id, const GivenOptions& options)
    : Optimizer(registry.optimizer(id), options) {}

Optimizer::Optimizer(const Offered<lh_optimizer>& offered, const GivenOptions& options)
    : part_("optimizer", offered, options, "train.optimizer_params") {
  Call flags = part_.call("flags");
  const uint32_t given = flags.run([&] { return part_->flags(part_.self()); });
  flags.check();
  if ((given & ~LH_OPTIMIZER_ELEMENTWISE) != 0) flags.wrong(fmt::format("gives {:#x}, unknown to this host", given));
  elementwise_ = (given & LH_OPTIMIZER_ELEMENTWISE) != 0;
  Call passes = part_.call("passes");
  passes_ = passes.run([&] { return part_->passes(part_.self()); });
  passes.check();
  if (passes_ < 1 || passes_ > most_passes)
    passes.wrong(fmt::format("gives {}, expected 1 to {}", passes_, most_passes));
}

std::vector<StateSpec> Optimizer::states(const Parameter& parameter) const {
  std::vector<StateSpec> specs;
  std::set<std::string> names{"p", "g", "lr", "step", "ema"};  // also sections of state files
  const lh_parameter abi = abi_of(parameter);
  for (uint32_t i = 0;; ++i) {
    Call call = part_.call("state");
    lh_state state{};
    call.check(call.run([&] { return part_->state(part_.self(), &abi, i, &state); }));
    if (state.name == nullptr) return specs;
    if (i == most_states) call.wrong(fmt::format("the list of states does not end: number {} is still there", i));
    StateSpec spec{.name = state.name,
                   .of_group = state.scope == LH_STATE_OF_GROUP,
                   .initial = state.initial,
                   .meaning = state.meaning,
                   .value = state.value,
                   .desc = from_abi(state.desc, DType::f32)};
    const auto wrong = [&](const std::string& what) { call.wrong(fmt::format("state '{}' {}", spec.name, what)); };
    if (!names.insert(spec.name).second || is_reduction(spec.name)) wrong("has a name that is taken");
    if (state.scope != LH_STATE_OF_TENSOR && !spec.of_group) wrong(fmt::format("has the scope {}", state.scope));
    if (spec.initial < LH_INITIAL_ZERO || spec.initial > LH_INITIAL_PARAMETER)
      wrong(fmt::format("has the initial value {}", spec.initial));
    if (spec.meaning < LH_MEANING_OWN || spec.meaning > LH_MEANING_SQUARE_AVERAGE)
      wrong(fmt::format("has the meaning {}", spec.meaning));
    if (!std::isfinite(spec.value)) wrong("has an initial value that is not finite");
    const DType t = spec.desc.dtype;
    if (t != DType::f32 && t != DType::bf16 && t != DType::i32 && t != DType::u8)
      wrong(fmt::format("is {}, expected float32, bfloat16, int32 or uint8", spec.desc.text()));
    if (spec.desc.shape.numel() < 1) wrong("is empty");
    if (spec.initial == LH_INITIAL_PARAMETER && (spec.of_group || spec.desc != Desc{DType::f32, parameter.shape}))
      wrong("starts as a copy of the parameter and has another shape or type");
    specs.push_back(std::move(spec));
  }
}

template <typename Build>
Graph Optimizer::build(const std::string& function, Build build) const {
  Graph graph(DType::f32);
  const GraphHandle handle = open_graph(part_.host(), graph);
  Call call = part_.call(function, handle.get());
  call.check(build(call, handle.get()));
  settle_layouts(graph);
  return graph;
}

Graph Optimizer::build_pass(uint32_t pass, const Parameter& parameter, std::vector<std::string>& known) const {
  const std::string function = passes_ == 1 ? "build_pass" : fmt::format("build_pass {}", pass);
  const lh_parameter abi = abi_of(parameter);
  Graph graph = build(function, [&](Call& call, lh_graph* handle) {
    return call.run([&] { return part_->build_pass(part_.self(), handle, pass, &abi); });
  });
  const Call call = part_.call(function);
  const Desc tensor{DType::f32, parameter.shape};
  Allowed allowed{.inputs = {{"p", tensor}, {"g", tensor}, {"lr", number}, {"step", number}},
                  .outputs = {{"p", tensor}},
                  .reductions = true};
  for (const StateSpec& state : states(parameter)) {
    allowed.inputs[state.name] = state.desc;
    if (!state.of_group) allowed.outputs[state.name] = state.desc;
  }
  for (const std::string& name : known) allowed.inputs[name] = number;
  check_graph(call, graph, allowed);
  if (elementwise_)
    for (const Node& node : graph.nodes)
      if (!node.op->elementwise)
        call.wrong(fmt::format("uses {}, and the rule says that it is elementwise", graph.describe(node)));
  for (const auto& [name, value] : graph.outputs)
    if (is_reduction(name) && std::ranges::find(known, name) == known.end()) known.push_back(name);
  return graph;
}

Graph Optimizer::build_between(uint32_t pass, const Parameter& any, std::vector<std::string>& known) const {
  if (part_->build_between == nullptr) return Graph(DType::f32);
  const std::string function = fmt::format("build_between {}", pass);
  Graph graph = build(function, [&](Call& call, lh_graph* handle) {
    return call.run([&] { return part_->build_between(part_.self(), handle, pass); });
  });
  const Call call = part_.call(function);
  Allowed allowed{.inputs = {{"lr", number}, {"step", number}}, .scalars = true};
  for (const std::string& name : known) allowed.inputs[name] = number;
  for (const StateSpec& state : states(any)) {
    if (state.of_group)
      allowed.inputs[state.name] = allowed.outputs[state.name] = state.desc;
    else if (graph.outputs.contains(state.name))
      call.wrong(fmt::format("gives '{}', a state of each tensor", state.name));
  }
  check_graph(call, graph, allowed);
  for (const auto& [name, value] : graph.outputs)
    if (!allowed.outputs.contains(name)) known.push_back(name);
  return graph;
}

Graph Optimizer::build_evaluation(const Parameter& parameter) const {
  if (part_->build_evaluation == nullptr) return Graph(DType::f32);
  const lh_parameter abi = abi_of(parameter);
  Graph graph = build("build_evaluation", [&](Call& call, lh_graph* handle) {
    return call.run([&] { return part_->build_evaluation(part_.self(), handle, &abi); });
  });
  const Call call = part_.call("build_evaluation");
  const Desc tensor{DType::f32, parameter.shape};
  Allowed allowed{.inputs = {{"p", tensor}, {"step", number}}, .outputs = {{"p", tensor}}};
  for (const StateSpec& state : states(parameter)) allowed.inputs[state.name] = state.desc;
  check_graph(call, graph, allowed);
  if (graph.outputs.contains("p") && graph.inputs.contains("p") && graph.outputs.at("p") == graph.inputs.at("p"))
    graph.outputs.clear();
  return graph;
}

}  // namespace lh
