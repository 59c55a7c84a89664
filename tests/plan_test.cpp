// The memory plan and recomputation, on random graphs and on the training graph of the bundled small model: the plan is
// checked against lives that this file works out by itself, and by running in an arena between guard bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ops/ops.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/model_files.h"
#include "support/toy_step.h"

namespace lh {
namespace {

using namespace test;

struct Life {
  int64_t first = 0, last = 0;
};

// From the definition in run/plan.h: written at `first`, read last at `last`; aliases lengthen the life of their
// source.
std::map<uint32_t, Life> lives_of(const Graph& g) {
  std::map<uint32_t, uint32_t> source;
  for (const Node& node : g.nodes)
    if (node.op->alias) source[node.outputs[0].id] = node.inputs[0].id;
  const auto owner = [&](Value v) {
    uint32_t id = v.id;
    while (source.contains(id)) id = source.at(id);
    return id;
  };
  const auto end = static_cast<int64_t>(g.nodes.size());
  std::map<uint32_t, Life> lives;
  for (uint32_t id = 1; id <= g.value_count(); ++id)
    if (const ValueKind k = g.info(Value{id}).kind; k == ValueKind::input) lives[id] = {-1, end};
  for (int64_t n = 0; n < end; ++n) {
    const Node& node = g.nodes[static_cast<size_t>(n)];
    for (const Value out : node.outputs)
      if (owner(out) == out.id) lives[out.id] = {n, n};
    for (const Value in : node.inputs)
      if (in && lives.contains(owner(in))) lives[owner(in)].last = std::max(lives[owner(in)].last, n);
  }
  for (const auto& [name, v] : g.outputs)
    if (lives.contains(owner(v))) lives[owner(v)].last = end;
  return lives;
}

void expect_valid(const Graph& g, const Plan& plan, const std::set<Value>& external) {
  const std::map<uint32_t, Life> lives = lives_of(g);
  std::map<uint32_t, const PlannedBuffer*> planned;
  for (const PlannedBuffer& b : plan.buffers) {
    planned[b.value.id] = &b;
    EXPECT_GE(b.offset, 0);
    EXPECT_EQ(b.offset % plan_alignment, 0);
    EXPECT_LE(b.offset + b.bytes, plan.bytes);
    EXPECT_EQ(b.bytes, g.desc(b.value).bytes());
  }
  int64_t peak = 0;
  std::vector<std::pair<const PlannedBuffer*, Life>> all;
  for (const auto& [id, life] : lives) {
    if (external.contains(Value{id})) {
      EXPECT_FALSE(planned.contains(id)) << "an external value has a place in the arena";
      continue;
    }
    ASSERT_TRUE(planned.contains(id)) << "value " << id << " has no place";
    all.emplace_back(planned.at(id), life);
  }
  EXPECT_EQ(all.size(), plan.buffers.size());
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const auto& [a, la] = all[i];
      const auto& [b, lb] = all[j];
      if (la.first > lb.last || lb.first > la.last) continue;
      ASSERT_TRUE(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset)
          << "values " << a->value.id << " and " << b->value.id << " live at once in the same place";
    }
  for (int64_t n = -1; n <= static_cast<int64_t>(g.nodes.size()); ++n) {
    int64_t live = 0;
    for (const auto& [buffer, life] : all)
      if (life.first <= n && n <= life.last)
        live += (buffer->bytes + plan_alignment - 1) / plan_alignment * plan_alignment;
    peak = std::max(peak, live);
  }
  EXPECT_EQ(plan.live_peak, peak);
  EXPECT_GE(plan.bytes, plan.live_peak);
}

// Ops that need no attributes of size, on matrices of up to 40 x 40; some results are never read.
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {
    for (const char* name : {"a", "b"}) pool_.push_back(g.add_input(name, {DType::f32, {roll(20) + 1, roll(20) + 1}}));
    pool_.push_back(g.add_constant(ramp({7, 5}, seed)));
    for (int n = 0; n < 60; ++n) grow();
    for (const char* name : {"y0", "y1", "y2"}) g.outputs[name] = pick();
    g.outputs["last"] = pool_.back();
  }
  Graph g{DType::f32};

 private:
  int64_t roll(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  Value pick() { return pool_[static_cast<size_t>(roll(static_cast<int64_t>(pool_.size())))]; }
  void keep(const std::vector<Value>& made) { pool_.insert(pool_.end(), made.begin(), made.end()); }
  void grow() {
    using List = std::vector<int64_t>;
    const Value v = pick(), u = pick();
    const int64_t rows = g.desc(v).shape[0], columns = g.desc(v).shape[1];
    switch (roll(6)) {
      case 0: return keep(g.add(reshape_op, {v}, {{"shape", List{columns, rows}}}, 0));
      case 1: return keep(g.add(permute_op, {v}, {{"axes", List{1, 0}}}, 0));
      case 2:
        if (rows == 1) break;
        return keep(g.add(split_op, {v}, {{"axis", int64_t{0}}, {"sizes", List{1, rows - 1}}}, 0));
      case 3:
        if (columns > 20) break;
        return keep(g.add(concat_op, {v, v}, {{"axis", int64_t{1}}}, 0));
      case 4:
        if (g.desc(v).shape != g.desc(u).shape) break;
        return keep(g.add(add_op, {v, u}, {}, 0));
      default: break;
    }
    keep(g.add(tanh_op, {v}, {}, 0));
  }
  std::mt19937 random_;
  std::vector<Value> pool_;
};

void set_inputs(Program& program) {
  int64_t seed = 1;
  for (const auto& [name, value] : program.graph().inputs)
    program.set_input(name, ramp(program.graph().desc(value).shape, seed++));
}

Tensors outputs_of(const Program& program) {
  Tensors outputs;
  for (const auto& [name, value] : program.graph().outputs) outputs[name] = program.output(name);
  return outputs;
}

// Every computed value in memory of its own: what a plan may not change.
Tensors run_without_reuse(Device& device, const Graph& g) {
  std::vector<DeviceMemory> memory;
  Externals externals;
  std::set<Value> external;
  for (const Node& node : g.nodes)
    for (const Value v : node.outputs) {
      if (node.op->alias) continue;
      memory.emplace_back(device, g.desc(v).bytes(), "own memory");
      externals[v] = memory.back().data();
      external.insert(v);
    }
  Plan plan = plan_memory(g, external);
  expect_valid(g, plan, external);
  const DeviceMemory arena(device, plan.bytes, "arena");
  Program program(device, g, std::move(plan), arena.data(), externals);
  set_inputs(program);
  program.run();
  return outputs_of(program);
}

TEST(Plan, RandomGraphs) {
  const uint32_t first = std::random_device{}();
  Device device(tested_device());
  for (uint32_t seed = first; seed < first + 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomGraph random(seed);
    Plan plan = plan_memory(random.g, {});
    expect_valid(random.g, plan, {});
    const GuardedArena arena(device, plan.bytes);
    Program program(device, random.g, std::move(plan), arena.data(), {});
    set_inputs(program);
    program.run();
    const Tensors got = outputs_of(program), want = run_without_reuse(device, random.g);
    for (const auto& [name, tensor] : want) EXPECT_EQ(got.at(name).data, tensor.data) << name;
    program.run();  // inputs and constants are still there
    for (const auto& [name, tensor] : outputs_of(program)) EXPECT_EQ(tensor.data, want.at(name).data) << name;
    arena.expect_untouched();
    if (testing::Test::HasFailure()) break;
  }
}

TEST(Plan, AliasesShareTheirSource) {
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {64, 64}});
  const Value y = g.add(tanh_op, {x}, {}, 0)[0];
  const Value flat = g.add(reshape_op, {y}, {{"shape", std::vector<int64_t>{4096}}}, 0)[0];
  const Value cut = g.add(detach_op, {flat}, {}, 0)[0];
  const Value z = g.add(tanh_op, {cut}, {}, 0)[0];
  g.outputs["z"] = g.add(tanh_op, {z}, {}, 0)[0];
  const Plan plan = plan_memory(g, {});
  EXPECT_EQ(plan.root[flat.id], y.id);
  EXPECT_EQ(plan.root[cut.id], y.id);
  EXPECT_EQ(plan.buffers.size(), 4u);
  EXPECT_EQ(plan.live_peak, 3 * 64 * 64 * 4);  // x throughout, then two of y, z and the result
  EXPECT_EQ(plan.bytes, plan.live_peak);
}

TEST(Plan, ProgramsShareAnArena) {
  Device device(tested_device());
  const RandomGraph a(1), b(2);
  Plan plan_a = plan_memory(a.g, {}), plan_b = plan_memory(b.g, {});
  const DeviceMemory arena(device, std::max(plan_a.bytes, plan_b.bytes), "shared arena");
  Program first(device, a.g, std::move(plan_a), arena.data(), {}),
      second(device, b.g, std::move(plan_b), arena.data(), {});
  Tensors want;
  for (int turn = 0; turn < 2; ++turn) {
    set_inputs(first);
    first.run();
    const Tensors got = outputs_of(first);
    if (turn == 0) want = got;
    for (const auto& [name, tensor] : got) EXPECT_EQ(tensor.data, want.at(name).data) << name;
    set_inputs(second);
    second.run();
  }
}

const Model& toy() {
  static const Model model = [] {
    const std::filesystem::path folder = std::filesystem::path(LORA_SOURCE_DIR) / "examples" / "toy_flux";
    ModelConfig config;
    config.name_or_path = folder / "flux_toy.safetensors";
    return Model(test::built_plugins(), config, "flux");
  }();
  return model;
}

TEST(Plan, TrainingGraph) {
  const TrainGraph t = toy_graph(toy(), 0);
  const std::set<Value> external = external_to_step(t.graph);
  const Plan plan = plan_memory(t.graph, external);
  expect_valid(t.graph, plan, external);
  EXPECT_LE(static_cast<double>(plan.bytes), 1.1 * static_cast<double>(plan.live_peak));
}

TEST(Recompute, LowersThePeakAndChangesNoBit) {
  const Ran want = run_step(toy(), 0);
  EXPECT_TRUE(std::isfinite(want.loss));
  EXPECT_GT(want.gradients.size(), 10u);
  for (const auto& [name, g] : want.gradients)
    EXPECT_TRUE(std::ranges::any_of(g.as<float>(), [](float v) { return v != 0; })) << name << " has no gradient";
  int64_t last_peak = INT64_MAX;
  for (const double share : {0.0, 0.5, 1.0}) {
    SCOPED_TRACE(share);
    const TrainGraph t = toy_graph(toy(), share);
    ASSERT_GE(t.checkpoint_scopes, 2);
    EXPECT_EQ(t.recomputed_scopes, static_cast<int64_t>(std::ceil(share * static_cast<double>(t.checkpoint_scopes))));
    const Plan plan = plan_memory(t.graph, external_to_step(t.graph));
    EXPECT_LT(plan.live_peak, last_peak);
    last_peak = plan.live_peak;
    const Ran got = run_step(toy(), share);
    EXPECT_EQ(got.loss, want.loss);
    for (const auto& [name, g] : want.gradients) EXPECT_EQ(got.gradients.at(name).data, g.data) << name;
  }
}

}  // namespace
}  // namespace lh
