#include "run/update_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "graph/fingerprint.h"
#include "graph/op.h"
#include "ops/ops.h"
#include "passes/fuse_pointwise.h"
#include "passes/stack.h"

namespace lh {
namespace {

constexpr int64_t alignment = 256;
int64_t aligned(int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// What `v` is stored in: itself, or what it is another shape of.
Value stored_in(const Graph& graph, Value v) {
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node)
    if (node->op->alias && node->outputs[0] == v) v = node->inputs[0];
  return v;
}

// `input` in the shape of `like`, where there is one.
Value shaped_like(const Graph& graph, Value input, Value like) {
  for (const Node& node : graph.nodes)
    if (node.op->alias && stored_in(graph, node.outputs[0]) == input && graph.desc(node.outputs[0]) == graph.desc(like))
      return node.outputs[0];
  return input;
}

// Result i of the node may be stored over one of the inputs.
bool stored_over(const Node& node, size_t i, const std::set<Value>& inputs) {
  if (i >= node.op->in_place.size()) return false;
  const size_t from = node.op->in_place[i];
  return from < node.inputs.size() && inputs.contains(node.inputs[from]);
}

// The op that makes `v` may write it over the storage of `input`: no op from there on reads the old content. An op that
// works in place reads it itself.
bool replaces(const Graph& graph, Value v, Value input) {
  std::set<Value> storage{input};
  bool made = false;
  for (const Node& node : graph.nodes) {
    const bool reads = std::ranges::any_of(node.inputs, [&](Value in) { return storage.contains(in); });
    if (made && reads) return false;
    if (node.op->alias && reads) storage.insert(node.outputs[0]);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != v) continue;
      made = !node.op->alias && (!reads || stored_over(node, i, storage));
      if (!made) return false;
    }
  }
  return made && std::ranges::none_of(graph.outputs, [&](const auto& item) { return storage.contains(item.second); });
}

// Results that are an input, itself or in another shape, or a constant, become copies: what an input is stored in may
// be written before its old content would be read.
void copy_inputs(Graph& graph) {
  std::set<Value> given;
  for (uint32_t id = 1; id <= graph.value_count(); ++id)
    if (graph.info(Value{id}).kind != ValueKind::computed) given.insert(Value{id});
  for (const Node& node : graph.nodes)
    if (node.op->alias && given.contains(node.inputs[0])) given.insert(node.outputs[0]);
  for (auto& [name, value] : graph.outputs) {
    const auto same = graph.inputs.find(name);
    if (!given.contains(value) || (same != graph.inputs.end() && same->second == value)) continue;
    const auto dtype = static_cast<int64_t>(graph.desc(value).dtype);
    value = graph.add(cast_op, {value}, {{"dtype", dtype}}, 0)[0];
  }
}

// One number of a tensor that is to be reduced.
Value reduced(Graph& graph, Value v, bool largest) {
  const Shape shape = graph.desc(v).shape;
  if (shape.numel() == 1) return graph.add(affine_op, {v}, {{"scale", 1.0}, {"shift", 0.0}}, 0)[0];
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < shape.rank(); ++i) axes.push_back(i);
  return graph.add(largest ? amax_op : sum_op, {v}, {{"axes", axes}}, 0)[0];
}

void add_reductions(Graph& graph) {
  for (auto& [name, value] : graph.outputs)
    if (is_reduction(name)) value = reduced(graph, value, name.starts_with(max_prefix));
}

bool is_largest(const std::string& name) { return name.starts_with(max_prefix); }

// Such a run goes to its end, and saves what it began with.
void require_change(const Optimizer& rule, bool gives_p) {
  if (gives_p) return;
  fail(Code::plugin, "optimizer '{}', build_pass: no pass gives 'p', the new parameter: nothing would be trained",
       rule.id());
}

}  // namespace

UpdateGraphPlan::UpdateGraphPlan(Graph g) : graph(std::move(g)) {
  copy_inputs(graph);
  std::map<Value, Value> wanted;
  for (const auto& [name, value] : graph.outputs)
    if (graph.inputs.contains(name) && graph.inputs.at(name) != value) {
      const Value made = stored_in(graph, value);
      wanted[made] = shaped_like(graph, graph.inputs.at(name), made);
    }
  fuse_pointwise(graph, wanted);
  for (const auto& [name, value] : graph.inputs) external[value] = name;
  for (const auto& [name, value] : graph.outputs) {
    const auto old = graph.inputs.find(name);
    if (old != graph.inputs.end() && old->second == value) continue;  // stays as it is
    const Value made = stored_in(graph, value);
    const bool made_here = graph.info(made).kind == ValueKind::computed && !external.contains(made);
    if (made_here && (old == graph.inputs.end() || replaces(graph, made, old->second)))
      external[made] = name;
    else
      copied.emplace_back(value, name);
  }
  std::set<Value> values;
  for (const auto& [value, name] : external) values.insert(value);
  plan = plan_memory(graph, values);
  plan.side_by_side.clear();  // whole blocks are
}

UpdatePlan::UpdatePlan(const std::vector<UpdateGroup>& groups, std::vector<TrainedTensor> tensors, StatePlace place,
                       int64_t part)
    : tensors_(std::move(tensors)), place_(place), part_(part) {
  for (const UpdateGroup& group : groups) groups_.push_back({.name = group.name, .rule = group.rule});
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<size_t> members;
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (tensors_[i].parameter.group == group) members.push_back(i);
    if (members.empty()) continue;
    std::ranges::sort(members, {}, [&](size_t i) { return tensors_[i].offset; });
    plan_group(group, members);
  }
  if (place_ == StatePlace::host) plan_window();
}

int64_t UpdatePlan::take_number(int64_t count) {
  const int64_t at = number_bytes_;
  number_bytes_ += aligned(count * static_cast<int64_t>(sizeof(float)));
  return at;
}

void UpdatePlan::place_states(UpdateBlock& block) {
  const int64_t count = std::max<int64_t>(1, block.count);
  for (const StateSpec& state : block.states) {
    block.state_offsets[state.name] = state_bytes_;
    block.state_bytes[state.name] = checked_mul(state.desc.bytes(), count);
    state_bytes_ += aligned(block.state_bytes[state.name]);
  }
}

// Behind what the blocks compute in, as the arena is free of all else while the weights are updated.
void UpdatePlan::plan_window() {
  size_t with_states = 0;
  for (UpdateBlock& block : blocks_) {
    int64_t bytes = 0;
    for (const StateSpec& state : block.states) {
      block.in_window[state.name] = bytes;
      bytes += aligned(block.state_bytes.at(state.name));
    }
    place_bytes_ = std::max(place_bytes_, bytes);
    with_states += block.states.empty() ? 0 : 1;
  }
  const size_t places = std::min<size_t>(with_states, 2);
  window_ = aligned(arena_bytes_);
  if (places > 0) arena_bytes_ = window_ + static_cast<int64_t>(places) * place_bytes_;
  const auto visit = [&](size_t block, const Graph& graph) {
    StateVisit made{.block = block, .used = {}, .written = {}};
    for (const StateSpec& state : blocks_[block].states) {
      const auto in = graph.inputs.find(state.name), out = graph.outputs.find(state.name);
      const bool written = out != graph.outputs.end() && (in == graph.inputs.end() || in->second != out->second);
      if (written) made.written.insert(state.name);
      if (written || in != graph.inputs.end()) made.used.insert(state.name);
    }
    return made;
  };
  std::vector<StateVisit> of_step, of_evaluation;
  for (size_t group = 0; group < groups_.size(); ++group)
    for (size_t pass = 0; pass < groups_[group].between.size(); ++pass)
      for (size_t block = 0; block < blocks_.size(); ++block)
        if (blocks_[block].group == group) of_step.push_back(visit(block, blocks_[block].passes[pass].graph));
  for (size_t block = 0; block < blocks_.size(); ++block)
    of_evaluation.push_back(visit(block, blocks_[block].evaluation.graph));
  step_travel_ = plan_travel(of_step, places);
  evaluation_travel_ = plan_travel(of_evaluation, places);
}

void UpdatePlan::plan_group(size_t group, const std::vector<size_t>& members) {
  GroupPlan& plan = groups_[group];
  for (const StateSpec& state : plan.rule->states(tensors_[members[0]].parameter)) {
    if (!state.of_group) continue;
    plan.state_offsets[state.name] = group_state_bytes_;
    group_state_bytes_ += aligned(state.desc.bytes());
    plan.states.push_back(state);
  }
  if (!plan.rule->elementwise() || !plan_flat(group, members)) plan_each(group, members);
  finish(group);
  spread(group);
}

// False where the tensors do not lie side by side, or have gaps between them whose zeros would be reduced as well.
bool UpdatePlan::plan_flat(size_t group, const std::vector<size_t>& members) {
  const Optimizer& rule = *groups_[group].rule;
  UpdateBlock block{.group = group, .tensors = members, .flat = true};
  block.offset = tensors_[members.front()].offset;
  int64_t end = block.offset, gaps = 0;
  for (const size_t i : members) {
    if (tensors_[i].offset - end >= alignment / static_cast<int64_t>(sizeof(float)))
      return false;  // others between them
    gaps += tensors_[i].offset - end;
    end = tensors_[i].offset + tensors_[i].parameter.shape.numel();
  }
  block.elements = end - block.offset;
  const Parameter all{.name = "all tensors of " + groups_[group].name,
                      .group = static_cast<uint32_t>(group),
                      .shape = Shape{block.elements}};
  for (const StateSpec& state : rule.states(all)) {
    if (state.of_group) continue;
    if (state.desc.shape != all.shape)
      fail(Code::plugin,
           "optimizer '{}': state '{}' of a rule that says it is elementwise is {}, expected the shape {}", rule.id(),
           state.name, state.desc.text(), all.shape.text());
    block.states.push_back(state);
  }
  std::vector<std::string> known;
  std::vector<std::vector<std::string>> known_before;  // by pass
  bool reduces = false, draws = false, gives_p = false;
  for (uint32_t pass = 0; pass < rule.passes(); ++pass) {
    known_before.push_back(known);
    Graph graph = rule.build_pass(pass, all, known);
    reduces |= std::ranges::any_of(graph.outputs, [](const auto& item) { return is_reduction(item.first); });
    draws |= std::ranges::any_of(graph.nodes, [](const Node& node) { return node.op == &round_stochastic_op; });
    gives_p |= graph.outputs.contains("p");
    add_reductions(graph);
    block.passes.emplace_back(std::move(graph));
    groups_[group].between.push_back({{}, UpdateGraphPlan(rule.build_between(pass, all, known))});
  }
  require_change(rule, gives_p);
  if (reduces && gaps > 0) {
    groups_[group].between.clear();
    return false;
  }
  block.evaluation = UpdateGraphPlan(rule.build_evaluation(all));
  place_states(block);
  if (place_ == StatePlace::host && !reduces && !draws)
    cut_flat(std::move(block), rule, known_before);
  else
    blocks_.push_back(std::move(block));
  return true;
}

// A tensor belongs to the piece that it begins in; its states lie where they would in one piece.
void UpdatePlan::cut_flat(UpdateBlock whole, const Optimizer& rule,
                          const std::vector<std::vector<std::string>>& known) {
  int64_t width = 0;  // bytes of states of an element
  for (const StateSpec& state : whole.states) width += dtype_size(state.desc.dtype);
  // Enough of them that the first and the last, which travel alone, are little of the way.
  constexpr int64_t parts = 16, least = 1 << 20;
  const int64_t part = std::clamp(whole.elements * width / parts, std::min(least, part_), part_);
  const int64_t most =
      width == 0 ? whole.elements : std::max(alignment, part / width / alignment * alignment);  // of elements
  for (int64_t at = 0; at < whole.elements; at += most) {
    UpdateBlock piece{.group = whole.group, .tensors = {}, .flat = true};
    piece.offset = whole.offset + at;
    piece.elements = std::min(most, whole.elements - at);
    for (const size_t i : whole.tensors)
      if (tensors_[i].offset >= piece.offset && tensors_[i].offset < piece.offset + piece.elements)
        piece.tensors.push_back(i);
    const Parameter all{.name = "all tensors of " + groups_[whole.group].name,
                        .group = static_cast<uint32_t>(whole.group),
                        .shape = Shape{piece.elements}};
    for (const StateSpec& state : rule.states(all)) {
      if (state.of_group) continue;
      piece.states.push_back(state);
      piece.state_offsets[state.name] = whole.state_offsets.at(state.name) + at * dtype_size(state.desc.dtype);
      piece.state_bytes[state.name] = state.desc.bytes();
    }
    for (uint32_t pass = 0; pass < rule.passes(); ++pass) {
      std::vector<std::string> given = known[pass];
      piece.passes.emplace_back(rule.build_pass(pass, all, given));
    }
    piece.evaluation = UpdateGraphPlan(rule.build_evaluation(all));
    blocks_.push_back(std::move(piece));
  }
}

void UpdatePlan::plan_each(size_t group, const std::vector<size_t>& members) {
  const Optimizer& rule = *groups_[group].rule;
  std::vector<std::vector<Graph>> graphs(members.size());  // of each tensor: its passes, then its evaluation
  std::vector<std::string> known;
  bool gives_p = false;
  for (uint32_t pass = 0; pass < rule.passes(); ++pass) {
    std::vector<std::string> given = known;
    for (size_t m = 0; m < members.size(); ++m) {
      std::vector<std::string> own = known;
      graphs[m].push_back(rule.build_pass(pass, tensors_[members[m]].parameter, own));
      gives_p |= graphs[m].back().outputs.contains("p");
      for (const std::string& name : own)
        if (std::ranges::find(given, name) == given.end()) given.push_back(name);
    }
    known = std::move(given);
    groups_[group].between.push_back(
        {{}, UpdateGraphPlan(rule.build_between(pass, tensors_[members[0]].parameter, known))});
  }
  require_change(rule, gives_p);
  std::vector<std::string> prints(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    graphs[m].push_back(rule.build_evaluation(tensors_[members[m]].parameter));
    for (const Graph& graph : graphs[m]) prints[m] += fingerprint(graph);
  }
  std::set<std::string> shared{"lr", "step"};
  shared.insert(known.begin(), known.end());
  for (const StateSpec& state : groups_[group].states) shared.insert(state.name);

  for (size_t first = 0; first < members.size();) {
    const TrainedTensor& one = tensors_[members[first]];
    const int64_t elements = one.parameter.shape.numel();
    const auto fits = [&](size_t m) {
      const TrainedTensor& t = tensors_[members[m]];
      return t.offset == one.offset + static_cast<int64_t>(m - first) * elements &&
             t.parameter.shape == one.parameter.shape && t.parameter.role == one.parameter.role &&
             t.channels_last == one.channels_last && prints[m] == prints[first];
    };
    size_t end = first + 1;
    while (end < members.size() && fits(end)) ++end;
    Stacking how{.count = static_cast<int64_t>(end - first), .shared = shared};
    if (one.channels_last) how.reordered = {"p", "g"};
    std::vector<Graph> ready;
    for (const Graph& graph : graphs[first]) {
      std::optional<Graph> form = end - first > 1 ? stacked(graph, how) : std::nullopt;
      if (!form) break;
      ready.push_back(std::move(*form));
    }
    if (ready.size() < graphs[first].size()) {  // alone
      end = first + 1, how.count = 0;
      ready.clear();
      for (const Graph& graph : graphs[first]) ready.push_back(*stacked(graph, how));
    }
    UpdateBlock block{.group = group, .count = how.count, .offset = one.offset};
    for (size_t m = first; m < end; ++m) block.tensors.push_back(members[m]);
    block.elements = elements * static_cast<int64_t>(end - first);
    for (const StateSpec& state : rule.states(one.parameter))
      if (!state.of_group) block.states.push_back(state);
    block.evaluation = UpdateGraphPlan(std::move(ready.back()));
    ready.pop_back();
    for (Graph& graph : ready) {
      add_reductions(graph);
      block.passes.emplace_back(std::move(graph));
    }
    place_states(block);
    blocks_.push_back(std::move(block));
    first = end;
  }
}

// Gives every number of the group its place: scalars, results of reductions, and the parts that they are made of.
void UpdatePlan::finish(size_t group) {
  GroupPlan& plan = groups_[group];
  for (uint32_t pass = 0; pass < plan.rule->passes(); ++pass) {
    std::map<std::string, std::vector<UpdateBlock*>> parts;
    for (UpdateBlock& block : blocks_) {
      if (block.group != group) continue;
      block.slots.resize(plan.rule->passes());
      for (const auto& [name, value] : block.passes[pass].graph.outputs)
        if (is_reduction(name)) parts[name].push_back(&block);
    }
    for (const auto& [name, givers] : parts) {
      const int64_t result = plan.numbers.contains(name) ? plan.numbers.at(name) : take_number(1);
      plan.numbers[name] = result;
      const auto count = static_cast<int64_t>(givers.size());
      const int64_t first = count == 1 ? result : take_number(count);
      for (int64_t i = 0; i < count; ++i)
        givers[static_cast<size_t>(i)]->slots[pass][name] = first + i * static_cast<int64_t>(sizeof(float));
      if (count > 1) plan.between[pass].reductions.push_back({is_largest(name), first, count, result});
    }
    for (const auto& [name, value] : plan.between[pass].graph.graph.outputs)
      if (!plan.state_offsets.contains(name) && !plan.numbers.contains(name)) plan.numbers[name] = take_number(1);
  }
}

bool UpdatePlan::evaluates() const {
  return std::ranges::any_of(blocks_, [](const UpdateBlock& b) { return !b.evaluation.graph.outputs.empty(); });
}

// Blocks take turns with the branches; those of one branch share their memory. Blocks that wait for their states have
// one.
void UpdatePlan::spread(size_t group) {
  const size_t most = place_ == StatePlace::host ? 1 : 8;
  GroupPlan& plan = groups_[group];
  std::vector<UpdateBlock*> own;
  for (UpdateBlock& block : blocks_)
    if (block.group == group) own.push_back(&block);
  plan.branches = static_cast<int32_t>(std::min(own.size(), most));
  int64_t begin = 0;
  for (int32_t branch = 0; branch < plan.branches; ++branch) {
    int64_t bytes = 0;
    for (size_t i = static_cast<size_t>(branch); i < own.size(); i += static_cast<size_t>(plan.branches)) {
      own[i]->branch = branch;
      own[i]->arena = begin;
      for (const UpdateGraphPlan& pass : own[i]->passes) bytes = std::max(bytes, pass.plan.bytes);
      bytes = std::max(bytes, own[i]->evaluation.plan.bytes);
    }
    begin += bytes;
  }
  arena_bytes_ = std::max(arena_bytes_, begin);
  for (const UpdateBetween& between : plan.between) arena_bytes_ = std::max(arena_bytes_, between.graph.plan.bytes);
}

std::vector<std::vector<PlannedGraph>> UpdatePlan::graphs() const {
  const auto planned = [](const UpdateGraphPlan& update) { return PlannedGraph{&update.graph, &update.plan}; };
  std::vector<std::vector<PlannedGraph>> all;
  for (size_t group = 0; group < groups_.size(); ++group)
    for (size_t pass = 0; pass < groups_[group].between.size(); ++pass) {
      std::vector<PlannedGraph> together;
      for (const UpdateBlock& block : blocks_) {
        if (block.group == group) together.push_back(planned(block.passes[pass]));
        if (place_ == StatePlace::host && !together.empty()) all.push_back(std::exchange(together, {}));
      }
      if (!together.empty()) all.push_back(std::move(together));
      all.push_back({planned(groups_[group].between[pass].graph)});
    }
  for (const UpdateBlock& block : blocks_) all.push_back({planned(block.evaluation)});
  return all;
}

int64_t UpdatePlan::launches() const {
  int64_t count = 0;
  const auto add = [&](const UpdateGraphPlan& plan) {
    for (const Node& node : plan.graph.nodes) count += node.op->alias ? 0 : 1;
    count += static_cast<int64_t>(plan.copied.size());
  };
  for (const UpdateBlock& block : blocks_)
    for (const UpdateGraphPlan& pass : block.passes) add(pass);
  for (const GroupPlan& group : groups_)
    for (const UpdateBetween& between : group.between) {
      add(between.graph);
      count += static_cast<int64_t>(between.reductions.size());
    }
  return count;
}

}  // namespace lh
