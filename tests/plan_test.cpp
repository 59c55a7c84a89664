// The memory plan and recomputation, on random graphs and on the training graph of the bundled small model: the plan is
// checked against lives that this file works out by itself, and by running in an arena between guard bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "ops/ops.h"
#include "run/recording.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/toy_step.h"

namespace lh::plan_test {
namespace {

using namespace test;

struct Life {
  int64_t first = 0, last = 0;
};

// From the definition in run/plan.h, of each value: written at `first`, read last at `last`, or as long as what reads
// or writes it may run.
std::map<uint32_t, Life> lives_of(const Graph& g) {
  const auto end = static_cast<int64_t>(g.nodes.size());
  std::map<uint32_t, Life> lives;
  for (uint32_t id = 1; id <= g.value_count(); ++id)
    if (const ValueKind k = g.info(Value{id}).kind; k == ValueKind::input) lives[id] = {-1, end};
  for (int64_t n = 0; n < end; ++n) {
    const Node& node = g.nodes[static_cast<size_t>(n)];
    for (const Value out : node.outputs) lives[out.id] = {n, n};
    for (const Value in : node.inputs)
      if (in && lives.contains(in.id)) lives[in.id].last = std::max(lives[in.id].last, n);
  }
  for (const auto& [name, v] : g.outputs)
    if (lives.contains(v.id)) lives[v.id].last = end;
  for (const SideBySide& side : side_by_side(g))
    for (const int64_t n : side.aside) {
      const Node& node = g.nodes[static_cast<size_t>(n)];
      for (const std::vector<Value>* values : {&node.inputs, &node.outputs})
        for (const Value v : *values)
          if (const auto it = lives.find(v.id); it != lives.end())
            it->second = {std::min(it->second.first, side.first), std::max(it->second.last, side.last)};
    }
  return lives;
}

// A value where the plan has it, as kernels are given it; data counts from the begin of the arena, -1: not in it.
struct Placed {
  Placed(const Graph& g, const Plan& plan, Value v, int64_t at) : begin(at), size(dtype_size(g.desc(v).dtype)) {
    tensor = kernel_tensor(g.desc(v), nullptr);
    set_strides(plan.views[v.id], tensor);
    strides = kernel_strides(tensor);
  }
  // Where the element with these indices begins.
  int64_t element(const std::vector<int64_t>& index) const {
    int64_t at = begin;
    for (size_t i = 0; i < index.size(); ++i) at += index[i] * strides[i] * size;
    return at;
  }
  // The runs of neighbouring bytes that it covers.
  std::vector<std::pair<int64_t, int64_t>> runs() const {
    std::vector<std::pair<int64_t, int64_t>> all;
    const auto rank = static_cast<size_t>(tensor.rank);
    std::vector<int64_t> index(rank, 0);
    const int64_t count = lk_numel(&tensor), last = rank == 0 ? 1 : tensor.dims[rank - 1];
    for (int64_t i = 0; i < count; i += last) {
      int64_t rest = i / last;
      for (size_t axis = rank; axis-- > 1;) {
        index[axis - 1] = rest % tensor.dims[axis - 1];
        rest /= tensor.dims[axis - 1];
      }
      const int64_t at = element(index);
      if (!all.empty() && all.back().second == at)
        all.back().second += last * size;
      else
        all.emplace_back(at, at + last * size);
    }
    return all;
  }
  int64_t begin, size;
  lk_tensor tensor;
  std::array<int64_t, LK_MAX_RANK> strides;
};

bool meet(const Placed& a, const Placed& b) {
  const auto of_a = a.runs(), of_b = b.runs();
  for (size_t i = 0, j = 0; i < of_a.size() && j < of_b.size();) {
    if (of_a[i].second <= of_b[j].first)
      ++i;
    else if (of_b[j].second <= of_a[i].first)
      ++j;
    else
      return true;
  }
  return false;
}

// Values that hold the same numbers where their memory is the same: an alias and its source; the parts of a split and
// the inputs of a concat with the whole, where they lie in it as they are cut.
class SameNumbers {
 public:
  SameNumbers(const Graph& g, const Plan& plan, const std::function<int64_t(Value)>& place) {
    for (const Node& node : g.nodes) {
      if (node.op->alias) join(node.outputs[0].id, node.inputs[0].id);
      const bool cut = node.op == &split_op || node.op == &slice_op;
      if (!cut && node.op != &concat_op) continue;
      const Value whole = cut ? node.inputs[0] : node.outputs[0];
      const Shape& shape = g.desc(whole).shape;
      const int64_t given = node.attrs.i("axis");
      const auto axis = static_cast<size_t>(given < 0 ? given + shape.rank() : given);
      const Placed in(g, plan, whole, place(whole));
      std::vector<int64_t> at(static_cast<size_t>(shape.rank()), 0);
      at[axis] = node.op == &slice_op ? node.attrs.i("start") : 0;
      for (const Value part : cut ? node.outputs : node.inputs) {
        const Placed is(g, plan, part, place(part));
        bool there = is.begin == in.element(at);
        for (size_t i = 0; i < at.size(); ++i)
          there = there && (is.tensor.dims[i] == 1 || is.strides[i] == in.strides[i]);
        if (there) join(part.id, whole.id);
        at[axis] += g.desc(part).shape[static_cast<int64_t>(axis)];
      }
    }
  }
  bool same(uint32_t a, uint32_t b) { return find(a) == find(b); }

 private:
  uint32_t find(uint32_t id) {
    while (up_.contains(id)) id = up_.at(id);
    return id;
  }
  void join(uint32_t a, uint32_t b) {
    if (find(a) != find(b)) up_[find(a)] = find(b);
  }
  std::map<uint32_t, uint32_t> up_;
};

void expect_valid(const Graph& g, const Plan& plan, const std::set<Value>& external) {
  std::map<uint32_t, const PlannedBuffer*> planned;
  for (const PlannedBuffer& b : plan.buffers) {
    planned[b.value.id] = &b;
    EXPECT_GE(b.offset, 0);
    EXPECT_EQ(b.offset % plan_alignment, 0);
    EXPECT_LE(b.offset + b.bytes, plan.bytes);
    EXPECT_EQ(b.bytes, plan.views[b.value.id].storage);
  }
  const auto elsewhere = [&](uint32_t root) {
    return external.contains(Value{root}) || g.info(Value{root}).kind == ValueKind::constant;
  };
  const auto place = [&](Value v) -> int64_t {
    const View& view = plan.views[v.id];
    return planned.contains(view.root) ? planned.at(view.root)->offset + view.offset : -1;
  };
  std::map<uint32_t, Life> buffers;  // by root
  std::vector<std::pair<uint32_t, Life>> all;
  for (const auto& [id, life] : lives_of(g)) {
    const View& view = plan.views[id];
    if (external.contains(Value{id})) {
      EXPECT_FALSE(planned.contains(id)) << "an external value has a place in the arena";
    }
    if (elsewhere(view.root)) continue;
    ASSERT_TRUE(planned.contains(view.root)) << "value " << id << " has no place";
    EXPECT_EQ(view.offset % plan_alignment, 0);
    EXPECT_LE(view.offset, planned.at(view.root)->bytes);
    EXPECT_LE(Placed(g, plan, Value{id}, view.offset).runs().back().second, planned.at(view.root)->bytes);
    const auto [buffer, fresh] = buffers.try_emplace(view.root, life);
    buffer->second = {std::min(buffer->second.first, life.first), std::max(buffer->second.last, life.last)};
    all.emplace_back(id, life);
  }
  EXPECT_EQ(buffers.size(), plan.buffers.size());
  SameNumbers numbers(g, plan, place);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const auto& [a, la] = all[i];
      const auto& [b, lb] = all[j];
      if (la.first > lb.last || lb.first > la.last) continue;
      if (numbers.same(a, b)) continue;
      const PlannedBuffer &of_a = *planned.at(plan.views[a].root), &of_b = *planned.at(plan.views[b].root);
      if (of_a.offset + of_a.bytes <= of_b.offset || of_b.offset + of_b.bytes <= of_a.offset) continue;
      if (!meet(Placed(g, plan, Value{a}, place(Value{a})), Placed(g, plan, Value{b}, place(Value{b})))) continue;
      ASSERT_TRUE(numbers.same(a, b)) << "values " << a << " and " << b << " live at once in the same place";
    }
  int64_t peak = 0;
  for (int64_t n = -1; n <= static_cast<int64_t>(g.nodes.size()); ++n) {
    int64_t live = 0;
    for (const auto& [root, life] : buffers)
      if (life.first <= n && n <= life.last)
        live += (planned.at(root)->bytes + plan_alignment - 1) / plan_alignment * plan_alignment;
    peak = std::max(peak, live);
  }
  EXPECT_EQ(plan.live_peak, peak);
  EXPECT_GE(plan.bytes, plan.live_peak);
}

// Ops that need no attributes of size, on matrices of up to 40 x 40; some results are never read. Rows: of 64, cut and
// joined, which are places in the arena. Columns: matrices of 64 columns and multiples of it, cut and joined both ways,
// which lie in lines where ops take them.
enum class Cuts { any, rows, columns };
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed, Cuts cuts = Cuts::any) : random_(seed) {
    const bool whole = cuts != Cuts::any;
    for (const char* name : {"a", "b"})
      pool_.push_back(g.add_input(name, {DType::f32, {roll(20) + 1, whole ? 64 : roll(20) + 1}}));
    pool_.push_back(g.add_constant(whole ? ramp({7, 64}, seed) : ramp({7, 5}, seed)));
    for (int n = 0; n < 60; ++n) cuts == Cuts::any ? grow() : cuts == Cuts::rows ? grow_rows() : grow_columns();
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
  void grow_rows() {
    using List = std::vector<int64_t>;
    const Value v = pick(), u = pick();
    const int64_t rows = g.desc(v).shape[0];
    switch (roll(6)) {
      case 0: return keep(g.add(detach_op, {v}, {}, 0));
      case 1:
        if (rows == 1) break;
        return keep(g.add(split_op, {v}, {{"axis", int64_t{0}}, {"sizes", List{1, rows - 1}}}, 0));
      case 2:
        return keep(g.add(slice_op, {v}, {{"axis", int64_t{0}}, {"start", rows / 2}, {"length", rows - rows / 2}}, 0));
      case 3:
      case 4:
        if (rows + g.desc(u).shape[0] > 40) break;
        return keep(g.add(concat_op, {v, u}, {{"axis", int64_t{0}}}, 0));
      default: break;
    }
    keep(g.add(tanh_op, {v}, {}, 0));
  }
  void grow_columns() {
    using List = std::vector<int64_t>;
    const Value v = pick(), u = pick();
    const int64_t rows = g.desc(v).shape[0], columns = g.desc(v).shape[1], half = columns / 128 * 64;
    switch (roll(10)) {
      case 0: return keep(g.add(reshape_op, {v}, {{"shape", List{rows, columns}}}, 0));
      case 1:
      case 2:
        if (half == 0) break;
        return keep(g.add(split_op, {v}, {{"axis", int64_t{1}}, {"sizes", List{half, columns - half}}}, 0));
      case 3:
        if (half == 0) break;
        return keep(g.add(slice_op, {v}, {{"axis", int64_t{-1}}, {"start", half}, {"length", columns - half}}, 0));
      case 4:
      case 5:
        if (columns > 256 || g.desc(v).shape[0] != g.desc(u).shape[0]) break;
        return keep(g.add(concat_op, {v, u}, {{"axis", int64_t{1}}}, 0));
      case 6:
        if (rows > 20 || g.desc(u).shape != g.desc(v).shape) break;
        return keep(g.add(concat_op, {v, u}, {{"axis", int64_t{0}}}, 0));
      case 7:
        if (rows == 1) break;
        return keep(g.add(split_op, {v}, {{"axis", int64_t{0}}, {"sizes", List{1, rows - 1}}}, 0));
      case 8:
        if (g.desc(v).shape != g.desc(u).shape) break;
        return keep(g.add(add_op, {v, u}, {}, 0));  // takes no lines
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
  int in_lines = 0, sides = 0;
  for (uint32_t seed = first; seed < first + 90; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomGraph random(seed, static_cast<Cuts>(seed % 3));
    Plan plan = plan_memory(random.g, {}, PieceLayout::in_lines);
    for (const View& view : plan.views) in_lines += view.line != 0;
    expect_valid(random.g, plan, {});
    const GuardedArena arena(device, plan.bytes);
    Program program(device, random.g, std::move(plan), arena.data(), {});
    set_inputs(program);
    program.run();
    const Tensors got = outputs_of(program), want = run_without_reuse(device, random.g);
    for (const auto& [name, tensor] : want) EXPECT_EQ(got.at(name).data, tensor.data) << name;
    program.run();  // inputs and constants are still there
    for (const auto& [name, tensor] : outputs_of(program)) EXPECT_EQ(tensor.data, want.at(name).data) << name;
    sides += static_cast<int>(program.plan().side_by_side.size());
    Recording recording(device, [&] { program.run(); });
    for (int i = 0; i < 3; ++i) recording.launch();  // side by side, where the device does that
    for (const auto& [name, tensor] : outputs_of(program)) EXPECT_EQ(tensor.data, want.at(name).data) << name;
    arena.expect_untouched();
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(in_lines, 0);
  EXPECT_GT(sides, 0);
}

// Whoever asks for a plan within a bound gets that plan, or is told that it is certain to be larger, by a bound that
// is.
TEST(Plan, WithinABound) {
  const uint32_t first = std::random_device{}();
  int refused = 0;
  for (uint32_t seed = first; seed < first + 90; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomGraph random(seed, static_cast<Cuts>(seed % 3));
    const Plan whole = plan_memory(random.g, {});
    EXPECT_TRUE(whole.placed);
    for (const int64_t most : {whole.bytes, whole.bytes - 1, whole.live_peak, whole.live_peak - 1, int64_t{-1}}) {
      const Plan plan = plan_within(random.g, {}, most);
      if (plan.placed) {
        EXPECT_EQ(plan.bytes, whole.bytes);
        ASSERT_EQ(plan.buffers.size(), whole.buffers.size());
        for (size_t i = 0; i < plan.buffers.size(); ++i) EXPECT_EQ(plan.buffers[i].offset, whole.buffers[i].offset);
      } else {
        ++refused;
        EXPECT_GT(plan.bytes, most);
        EXPECT_LE(plan.bytes, whole.bytes);
      }
    }
  }
  EXPECT_GE(refused, 90) << "none has room in less than nothing";
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
  EXPECT_EQ(plan.views[flat.id].root, y.id);
  EXPECT_EQ(plan.views[cut.id].root, y.id);
  EXPECT_EQ(plan.buffers.size(), 4u);
  EXPECT_EQ(plan.live_peak, 3 * 64 * 64 * 4);  // x throughout, then two of y, z and the result
  EXPECT_EQ(plan.bytes, plan.live_peak);
}

TEST(Plan, PiecesOfABatchOfOneAreNotCopied) {
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {1, 3, 64}}), y = g.add_input("y", {DType::f32, {2, 3, 64}});
  const Value a = g.add(tanh_op, {x}, {}, 0)[0], b = g.add(tanh_op, {x}, {}, 0)[0], c = g.add(tanh_op, {y}, {}, 0)[0],
              twice = g.add(tanh_op, {x}, {}, 0)[0];
  const std::vector<int64_t> sizes{1, 2};
  const Value joined = g.add(concat_op, {a, b, twice, twice}, {{"axis", int64_t{1}}}, 0)[0];
  const std::vector<Value> cut =
      g.add(split_op, {joined}, {{"axis", int64_t{-2}}, {"sizes", std::vector<int64_t>{4, 8}}}, 0);
  const std::vector<Value> apart = g.add(split_op, {c}, {{"axis", int64_t{1}}, {"sizes", sizes}}, 0);
  const Value of_input =
      g.add(slice_op, {x}, {{"axis", int64_t{1}}, {"start", int64_t{1}}, {"length", int64_t{1}}}, 0)[0];
  for (const Value v : {cut[0], cut[1], apart[0], apart[1], of_input}) g.outputs[std::to_string(v.id)] = v;
  const Plan plan = plan_memory(g, {});
  const auto at = [&](Value v) { return std::pair(plan.views[v.id].root, plan.views[v.id].offset); };
  EXPECT_EQ(at(a), std::pair(joined.id, int64_t{0}));
  EXPECT_EQ(at(b), std::pair(joined.id, int64_t{3 * 256}));
  EXPECT_EQ(at(cut[1]), std::pair(joined.id, int64_t{4 * 256}));
  for (const Value own : {apart[0], apart[1], of_input, twice}) EXPECT_EQ(at(own), std::pair(own.id, int64_t{0}));
  const Plan bound = plan_memory(g, {a, cut[1]});
  EXPECT_EQ(bound.views[a.id].root, a.id) << "memory of the caller";
  EXPECT_EQ(bound.views[cut[1].id].root, cut[1].id);
}

// A block with one product for q, k, v and what goes up, and one for attention's result and what comes down.
TEST(Plan, ColumnsLieInLinesWhereTheirOpsTakeThem) {
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {2, 8, 256}});
  const Value wide = g.add(tanh_op, {x}, {}, 0)[0];
  const std::vector<Value> cut =
      g.add(split_op, {wide}, {{"axis", int64_t{-1}}, {"sizes", std::vector<int64_t>{128, 64, 64}}}, 0);
  const Value heads = g.add(reshape_op, {cut[0]}, {{"shape", std::vector<int64_t>{2, 8, 2, 64}}}, 0)[0];
  const Value norm = g.add(rms_norm_op, {heads}, {{"eps", 1e-6}}, 0)[0];
  const Value flat = g.add(reshape_op, {norm}, {{"shape", std::vector<int64_t>{2, 8, 128}}}, 0)[0];
  const Value up = g.add(tanh_op, {cut[1]}, {}, 0)[0], other = g.add(tanh_op, {cut[2]}, {}, 0)[0];
  const Value sum = g.add(add_op, {other, other}, {}, 0)[0];
  const Value joined = g.add(concat_op, {flat, up, sum}, {{"axis", int64_t{2}}}, 0)[0];
  g.outputs["y"] = g.add(tanh_op, {joined}, {}, 0)[0];
  const Plan plan = plan_memory(g, {});
  const auto at = [&](Value v) {
    const View& view = plan.views[v.id];
    return std::tuple(view.root, view.offset, view.line, view.pitch);
  };
  EXPECT_EQ(at(cut[0]), std::tuple(wide.id, 0, 128, 256));
  EXPECT_EQ(at(heads), at(cut[0])) << "an alias lies as its source does";
  EXPECT_EQ(at(cut[1]), std::tuple(wide.id, 512, 64, 256));
  EXPECT_EQ(at(norm), std::tuple(plan.views[joined.id].root, 0, 128, 256));
  EXPECT_EQ(at(up), std::tuple(plan.views[joined.id].root, 512, 64, 256));
  EXPECT_EQ(at(sum), std::tuple(sum.id, 0, 0, 0)) << "add takes no lines";
  expect_valid(g, plan, {});
}

// q, k and v of text and image tokens: v of all tokens lies in the lines of both products, which lie one behind the
// other.
TEST(Plan, ProductsOfStreamsThatMeetLieTogether) {
  Graph g(DType::f32);
  std::vector<Value> values, keys;
  std::vector<Value> products;
  for (const int64_t tokens : {4, 8}) {
    const Value x = g.add_input(fmt::format("x{}", tokens), {DType::f32, {1, tokens, 192}});
    products.push_back(g.add(tanh_op, {x}, {}, 0)[0]);
    const std::vector<Value> cut =
        g.add(split_op, {products.back()}, {{"axis", int64_t{-1}}, {"sizes", std::vector<int64_t>{64, 64, 64}}}, 0);
    keys.push_back(g.add(rms_norm_op, {cut[1]}, {{"eps", 1e-6}}, 0)[0]);
    values.push_back(cut[2]);
    g.outputs[fmt::format("q{}", tokens)] = g.add(tanh_op, {cut[0]}, {}, 0)[0];
  }
  const Value all_keys = g.add(concat_op, keys, {{"axis", int64_t{1}}}, 0)[0];
  const Value all_values = g.add(concat_op, values, {{"axis", int64_t{1}}}, 0)[0];
  g.outputs["k"] = g.add(tanh_op, {all_keys}, {}, 0)[0];
  g.outputs["v"] = g.add(tanh_op, {all_values}, {}, 0)[0];
  const Plan plan = plan_memory(g, {}, PieceLayout::in_lines);
  expect_valid(g, plan, {});
  const View& v = plan.views[all_values.id];
  EXPECT_EQ(std::tuple(v.line, v.pitch), std::tuple(64, 192));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(plan.views[products[i].id].root, v.root);
  EXPECT_EQ(plan.views[products[1].id].offset - plan.views[products[0].id].offset, 4 * 192 * 4);
  EXPECT_EQ(v.storage, 12 * 192 * 4);
  EXPECT_EQ(plan.views[all_keys.id].line, 0);
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
    const std::filesystem::path folder = toy_folder();
    ModelConfig config;
    config.name_or_path = folder / "flux_toy.safetensors";
    return Model(test::built_plugins(), config, "flux");
  }();
  return model;
}

TEST(Plan, TrainingGraph) {
  const TrainGraph t = toy_graph(toy(), {});
  const std::set<Value> external = external_to_step(t.graph);
  const Plan plan = plan_memory(t.graph, external);
  expect_valid(t.graph, plan, external);
  EXPECT_LE(static_cast<double>(plan.bytes), 1.1 * static_cast<double>(plan.live_peak));
}

}  // namespace
}  // namespace lh::plan_test
