// Finds which results of an update can go over what they replace, and runs it.
#include "run/update.h"

#include <algorithm>

#include "core/error.h"
#include "core/swap_axes.h"
#include "graph/op.h"
#include "run/fork.h"

namespace lh {
namespace {

// Elements of a [O, I, KH, KW] tensor in the order of memory, [O, KH, KW, I], or back.
HostTensor reordered(const HostTensor& from, const Shape& s, bool to_memory) {
  HostTensor to(from.desc);
  const int64_t pixels = s[2] * s[3];
  swap_axes(s[0], to_memory ? s[1] : pixels, to_memory ? pixels : s[1], dtype_size(from.desc.dtype), from.data.data(),
            to.data.data());
  return to;
}

}  // namespace

Update::Update(Device& device, const UpdatePlan& plan, const UpdateMemory& memory)
    : device_(device),
      plan_(plan),
      memory_(memory),
      states_(device, plan.place(), plan.state_bytes(), "optimizer states"),
      group_states_(device, plan.group_state_bytes(), "optimizer states of groups"),
      numbers_(device, plan.number_bytes(), "reductions of the optimizer"),
      step_ways_(ways_of(plan.step_travel())),
      evaluation_ways_(ways_of(plan.evaluation_travel())) {
  list_states();
  passes_.resize(plan.groups().size());
  between_.resize(plan.groups().size());
  for (size_t g = 0; g < plan.groups().size(); ++g) {
    passes_[g].resize(plan.groups()[g].between.size());
    for (const UpdateBetween& between : plan.groups()[g].between)
      between_[g].push_back(
          make(between.graph, memory_.arena, [&](const std::string& name, bool) { return group_storage(g, name); }));
  }
  for (size_t block = 0; block < plan.blocks().size(); ++block) add_block(block);
}

std::byte* Update::group_storage(size_t group, const std::string& name) const {
  if (name == "lr") return memory_.lr.at(group);
  if (name == "step") return memory_.step;
  const GroupPlan& plan = plan_.groups()[group];
  if (const auto state = plan.state_offsets.find(name); state != plan.state_offsets.end())
    return group_states_.data() + state->second;
  return numbers_.data() + plan.numbers.at(name);
}

std::byte* Update::state_storage(const StateTravel& travel, size_t block, size_t visit, const std::string& name) const {
  const UpdateBlock& of = plan_.blocks()[block];
  const auto state = of.state_offsets.find(name);
  if (state == of.state_offsets.end()) return nullptr;
  if (plan_.place() == StatePlace::device) return states_.data() + state->second;
  const StateStay& stay = travel.stays.at(travel.stay_of.at(visit).value());
  return memory_.arena + plan_.window_place(stay.place) + of.in_window.at(name);
}

size_t Update::visit_of(size_t group, size_t pass, size_t place) const {
  size_t visit = place;
  for (size_t g = 0; g <= group; ++g) {
    const auto blocks = static_cast<size_t>(
        std::ranges::count(plan_.blocks(), g, [](const UpdateBlock& block) { return block.group; }));
    visit += blocks * (g < group ? plan_.groups()[g].between.size() : pass);
  }
  return visit;
}

Update::Work Update::make(const UpdateGraphPlan& plan, std::byte* arena, const Storage& storage) {
  Work work;
  if (plan.graph.outputs.empty()) return work;
  Externals externals;
  for (const auto& [value, name] : plan.external) {
    const bool input = plan.graph.inputs.contains(name) && plan.graph.inputs.at(name) == value;
    externals[value] = storage(name, !input);
  }
  work.program = std::make_unique<Program>(device_, plan.graph, plan.plan, arena, externals);
  for (const auto& [value, name] : plan.copied)
    work.copies.emplace_back(work.program->tensor(value), kernel_tensor(plan.graph.desc(value), storage(name, true)));
  return work;
}

// Visits of a group begin behind those of the groups before it, pass by pass.
void Update::add_block(size_t number) {
  const UpdateBlock& block = plan_.blocks()[number];
  const int64_t at = block.offset * static_cast<int64_t>(sizeof(float));
  std::byte* const arena = memory_.arena + block.arena;
  for (size_t pass = 0; pass < block.passes.size(); ++pass) {
    const size_t visit = visit_of(block.group, pass, passes_[block.group][pass].size());
    Work work = make(block.passes[pass], arena, [&](const std::string& name, bool output) {
      if (name == "p") return memory_.p + at;
      if (name == "g") return memory_.g + at;
      if (std::byte* const state = state_storage(plan_.step_travel(), number, visit, name)) return state;
      if (output) return numbers_.data() + block.slots[pass].at(name);
      return group_storage(block.group, name);
    });
    work.branch = block.branch;
    passes_[block.group][pass].push_back(std::move(work));
  }
  evaluation_.push_back(make(block.evaluation, arena, [&](const std::string& name, bool output) {
    if (name == "p") return (output ? memory_.evaluation : memory_.p) + at;
    if (std::byte* const state = state_storage(plan_.evaluation_travel(), number, number, name)) return state;
    return group_storage(block.group, name);
  }));
}

void Update::list_states() {
  for (const GroupPlan& group : plan_.groups())
    for (const StateSpec& state : group.states)
      stored_.push_back({state.name + "/" + group.name, state, state.desc, group.state_offsets.at(state.name), false});
  for (const UpdateBlock& block : plan_.blocks())
    for (const StateSpec& state : block.states)
      for (size_t i = 0; i < block.tensors.size(); ++i) {
        const TrainedTensor& tensor = plan_.tensors()[block.tensors[i]];
        StoredState stored{state.name + "/" + tensor.parameter.name, state, state.desc,
                           block.state_offsets.at(state.name), false};
        if (block.flat) {
          stored.desc = stored.spec.desc = {state.desc.dtype, tensor.parameter.shape};
          stored.offset += (tensor.offset - block.offset) * dtype_size(state.desc.dtype);
          stored.channels_last = tensor.channels_last;
        } else {
          stored.offset += static_cast<int64_t>(i) * state.desc.bytes();
        }
        stored_.push_back(std::move(stored));
      }
}

HostTensor Update::download(const StoredState& state) const {
  HostTensor values(state.desc);
  if (state.spec.of_group)
    group_states_.download(state.offset, values.data.data(), state.desc.bytes());
  else
    states_.download(state.offset, values.data.data(), state.desc.bytes());
  return state.channels_last ? reordered(values, state.desc.shape, false) : values;
}

// As memory has it.
void Update::put(const StoredState& state, const HostTensor& values) const {
  if (state.spec.of_group)
    group_states_.upload(state.offset, values.data.data(), state.desc.bytes());
  else
    states_.upload(state.offset, values.data.data(), state.desc.bytes());
}

void Update::upload(const StoredState& state, const HostTensor& values) const {
  if (values.desc != state.desc)
    fail(Code::internal, "optimizer state '{}' is {}, given {}", state.key, state.desc.text(), values.desc.text());
  const HostTensor kept = state.channels_last ? reordered(values, state.desc.shape, true) : values;
  put(state, kept);
}

void Update::start(const StoredState& state) const {
  if (state.spec.of_group)
    group_states_.fill(state.offset, state.desc, state.spec.value);
  else
    states_.fill(state.offset, state.desc, state.spec.value);
}

void Update::initialise() {
  states_.clear();  // what is between them, too
  group_states_.clear();
  for (const StoredState& state : stored_)
    if (state.spec.initial == LH_INITIAL_CONSTANT && state.spec.value != 0) start(state);
  for (const UpdateBlock& block : plan_.blocks())
    for (const StateSpec& state : block.states)
      if (state.initial == LH_INITIAL_PARAMETER) start_as_parameter(block, state);
}

void Update::start_as_parameter(const UpdateBlock& block, const StateSpec& state) const {
  const auto size = static_cast<int64_t>(sizeof(float));
  const int64_t first = block.state_offsets.at(state.name), own = state.desc.shape.numel();
  const std::byte* const p = memory_.p + block.offset * size;
  states_.copy(first, p, block.elements * size);
  if (block.flat || !plan_.tensors()[block.tensors[0]].channels_last) return;
  for (const StoredState& stored : stored_) {  // states of stacked tensors have the order of files
    const int64_t place = stored.offset - first;
    if (stored.spec.name != state.name || place < 0 || place >= block.elements * size) continue;
    HostTensor values(state.desc);
    device_.check(lk_download(device_.context(), values.data.data(), p + place, own * size), "trained tensors");
    upload(stored, reordered(values, state.desc.shape, false));
  }
}

void Update::run(const Work& work) {
  if (!work.program) return;
  work.program->run();
  for (const auto& [from, to] : work.copies) {
    const int64_t bytes = lk_numel(&from) * dtype_size(static_cast<DType>(from.dtype));
    device_.check(lk_copy_async(device_.context(), LK_COMPUTE, to.data, from.data, bytes), "optimizer result");
  }
}

void Update::reduce(const Reduction& reduction) {
  const lk_tensor parts = kernel_tensor({DType::f32, {reduction.parts}}, numbers_.data() + reduction.first);
  const lk_tensor result = kernel_tensor({DType::f32, {1}}, numbers_.data() + reduction.result);
  if (reduction.largest) {
    const lk_reduce_max_params params{.x = parts, .y = result};
    device_.check(lk_reduce_max(device_.context(), &params), "reduction of the optimizer");
  } else {
    const lk_reduce_sum_params params{.x = parts, .y = result, .scale = 1};
    device_.check(lk_reduce_sum(device_.context(), &params), "reduction of the optimizer");
  }
}

void Update::run(const Part& part) {
  const bool travels = plan_.place() == StatePlace::host;
  if (!travels) return part([&] { run_here(); });
  step_ways_.begun = 0;
  size_t visit = 0;
  for (size_t g = 0; g < passes_.size(); ++g)
    for (size_t pass = 0; pass < passes_[g].size(); ++pass) {
      for (const Work& work : passes_[g][pass]) {
        before(step_ways_, visit);
        part([&] { run(work); });
        after(step_ways_, visit++);
      }
      if (between_[g][pass].program || !plan_.groups()[g].between[pass].reductions.empty())
        part([&] { between(g, pass); });
    }
  finish(step_ways_);
}

void Update::run_here() {
  for (size_t g = 0; g < passes_.size(); ++g)
    for (size_t pass = 0; pass < passes_[g].size(); ++pass) {
      Fork fork(device_, plan_.groups()[g].branches);
      for (const Work& work : passes_[g][pass]) {
        fork.enter(work.branch);
        run(work);
      }
      fork.join();
      between(g, pass);
    }
}

void Update::between(size_t group, size_t pass) {
  for (const Reduction& reduction : plan_.groups()[group].between[pass].reductions) reduce(reduction);
  run(between_[group][pass]);
}

void Update::evaluate(const Part& part) {
  evaluation_ways_.begun = 0;
  for (size_t i = 0; i < evaluation_.size(); ++i) {
    if (plan_.place() == StatePlace::host) before(evaluation_ways_, i);
    part([&] { evaluate_block(i); });
    if (plan_.place() == StatePlace::host) after(evaluation_ways_, i);
  }
  if (plan_.place() == StatePlace::host) finish(evaluation_ways_);
}

void Update::evaluate_block(size_t number) {
  if (evaluation_[number].program) return run(evaluation_[number]);
  const UpdateBlock& block = plan_.blocks()[number];  // p itself
  const int64_t size = static_cast<int64_t>(sizeof(float)), at = block.offset * size;
  device_.check(
      lk_copy_async(device_.context(), LK_COMPUTE, memory_.evaluation + at, memory_.p + at, block.elements * size),
      "weights of the optimizer");
}

}  // namespace lh
