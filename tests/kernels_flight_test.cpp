// Work in flight: recorded graphs, conditions, forks and workspace (queues: kernels_queues_test.cpp). Recording is a
// matter of the CUDA backend; the CPU's tests ask that it says so.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <utility>

#include "lora_kernels_link.h"
#include "support/flight.h"

namespace lk_test::kernels_flight_test {
namespace {

using testing::HasSubstr;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// A LoRA layer's gradients: products of several shapes, and s computed again in workspace, of a rank for which no
// kernel does with less of it.
class Layer {
 public:
  Layer(lk_context* context, std::mt19937& random)
      : dy(random_tensor(context, random, {rows, out}, LK_BF16, -1, 1)),
        x(random_tensor(context, random, {rows, in}, LK_BF16, -1, 1)),
        weight(random_tensor(context, random, {out, in}, LK_BF16, -1, 1)),
        down(random_tensor(context, random, {rank, in}, LK_F32, -1, 1)),
        up(random_tensor(context, random, {out, rank}, LK_F32, -1, 1)),
        dx(poisoned(context, {rows, in}, LK_BF16)),
        ddown(poisoned(context, {rank, in}, LK_F32)),
        dup(poisoned(context, {out, rank}, LK_F32)) {}

  lk_status backward(lk_context* context) const {
    const lk_lora_backward_params p{.dy = dy.view(),
                                    .x = x.view(),
                                    .s = {},
                                    .weight = weight.view(),
                                    .weight_scale = {},
                                    .down = down.view(),
                                    .up = up.view(),
                                    .mask = {},
                                    .scale = 0.5f,
                                    .accumulate = 0,
                                    .dx = dx.view(),
                                    .ddown = ddown.view(),
                                    .dup = dup.view()};
    return lk_lora_backward(context, &p);
  }
  std::vector<std::vector<unsigned char>> results() const { return {dx.bytes(), ddown.bytes(), dup.bytes()}; }
  void poison(lk_context* context) {
    for (Tensor* result : {&dx, &ddown, &dup})
      result->store(context, Values(static_cast<size_t>(result == &dx ? rows * in : rank * in), nan));
  }

  const Tensor& gradient() const { return ddown; }

 private:
  static constexpr int64_t rows = 129, in = 96, out = 96, rank = 40;
  Tensor dy, x, weight, down, up, dx, ddown, dup;
};

// Recording.

TEST_F(Flight, ARecordingGivesTheBitsOfTheCalls) {
  Layer layer(context.get(), random);
  if (!records()) {
    EXPECT_EQ(lk_capture_begin(context.get()), LK_E_UNSUPPORTED);
    EXPECT_EQ(error(), "capture_begin: the cpu backend records no graphs");
    EXPECT_EQ(lk_capture_end(context.get(), nullptr), LK_E_UNSUPPORTED);
    EXPECT_EQ(layer.backward(context.get()), LK_OK) << "the context goes on";
    return;
  }
  ASSERT_EQ(layer.backward(context.get()), LK_OK) << error();
  const auto expected = layer.results();
  layer.poison(context.get());
  const auto poison = layer.results();
  const Graph graph = record([&] { ASSERT_EQ(layer.backward(context.get()), LK_OK) << error(); });
  EXPECT_EQ(layer.results(), poison) << "recording runs nothing";
  for (int repeat = 0; repeat < 3; ++repeat) {
    layer.poison(context.get());
    launch(graph);
    EXPECT_EQ(layer.results(), expected) << "launch " << repeat;
  }
}

TEST_F(Flight, ALaunchReadsWhatIsThereThen) {
  if (!records()) GTEST_SKIP() << "the CPU records nothing";
  const Tensor x({4}, LK_F32), y({4}, LK_F32);
  const Graph graph = record([&] {
    const lk_unary_params square{.kind = LK_SQUARE, .a = 0, .b = 0, .x = x.view(), .y = y.view()};
    ASSERT_EQ(lk_unary(context.get(), &square), LK_OK) << error();
  });
  for (const double value : {2.0, 3.0}) {
    fill(x, value);
    launch(graph);
    EXPECT_EQ(load(y), Values(4, value * value));
  }
}

TEST_F(Flight, ARecordingCanBeDropped) {
  if (!records()) GTEST_SKIP() << "the CPU records nothing";
  const Tensor x = floats({2}, {1, 2});
  ASSERT_EQ(lk_capture_begin(context.get()), LK_OK) << error();
  fill(x, 5);
  ASSERT_EQ(lk_capture_end(context.get(), nullptr), LK_OK) << error();
  EXPECT_EQ(load(x), (Values{1, 2}));
  fill(x, 5);
  EXPECT_EQ(load(x), (Values{5, 5}));
}

// Conditions.

TEST_F(Flight, ARegionRunsOnlyIfItsValueIsFinite) {
  const Tensor condition({1}, LK_F32), inside({2}, LK_F32), outside({2}, LK_F32), copied({2}, LK_F32);
  const Tensor source = floats({2}, {7, 7});
  const lk_tensor value = condition.view();
  const auto work = [&] {
    ASSERT_EQ(lk_if_finite_begin(context.get(), &value), LK_OK) << error();
    fill(inside, 1);
    copy(LK_COMPUTE, copied.view().data, source.view().data, 8);
    ASSERT_EQ(lk_if_finite_end(context.get()), LK_OK) << error();
    fill(outside, 1);
  };
  const auto expect = [&](double number, const std::function<void()>& run) {
    SCOPED_TRACE(number);
    for (const Tensor* tensor : {&inside, &outside, &copied}) fill(*tensor, 0);
    fill(condition, number);
    run();
    const double done = std::isfinite(number) ? 1 : 0;
    EXPECT_EQ(load(inside), Values(2, done));
    EXPECT_EQ(load(copied), Values(2, 7 * done));
    EXPECT_EQ(load(outside), Values(2, 1)) << "what comes after the region";
  };
  const double numbers[] = {0.0, nan, -3e38, infinity, 1e-40, -infinity, 2.0};
  for (const double number : numbers) expect(number, work);
  if (!records()) return;
  const Graph graph = record(work);
  for (const double number : numbers) expect(number, [&] { launch(graph); });
}

TEST_F(Flight, ARegionSeesWhatItsQueueComputed) {
  // The value comes from an operation just before, in the same recording.
  const Tensor x = floats({1}, {1}), root({1}, LK_F32), done({1}, LK_F32);
  const lk_tensor value = root.view();
  const auto work = [&] {
    const lk_unary_params p{.kind = LK_SQRT, .a = 0, .b = 0, .x = x.view(), .y = root.view()};
    ASSERT_EQ(lk_unary(context.get(), &p), LK_OK) << error();
    ASSERT_EQ(lk_if_finite_begin(context.get(), &value), LK_OK) << error();
    fill(done, 1);
    ASSERT_EQ(lk_if_finite_end(context.get()), LK_OK) << error();
  };
  const auto expect = [&](double number, double found, const std::function<void()>& run) {
    fill(x, number);
    fill(done, 0);
    run();
    EXPECT_EQ(load(done), Values{found}) << number;
  };
  expect(4, 1, work);
  expect(-4, 0, work);
  if (!records()) return;
  const Graph graph = record(work);
  expect(-4, 0, [&] { launch(graph); });
  expect(4, 1, [&] { launch(graph); });
}

// Workspace.

TEST_F(Flight, MeasuringComputesNothing) {
  Layer layer(context.get(), random);
  const auto before = layer.results();
  const int64_t bytes = workspace_of([&] { EXPECT_EQ(layer.backward(context.get()), LK_OK) << error(); });
  EXPECT_EQ(layer.results(), before);
  if (records())
    EXPECT_GT(bytes, 0) << "s is computed again";
  else
    EXPECT_EQ(bytes, 0) << "the CPU's scratch memory is its own";
  // Addresses are not looked at, arguments are.
  const Tensor x({2}, LK_F32);
  lk_tensor nowhere = x.view(), wrong = x.view();
  nowhere.data = reinterpret_cast<void*>(256);
  wrong.dims[0] = 3;
  ASSERT_EQ(lk_measure_begin(context.get()), LK_OK);
  const lk_unary_params good{.kind = LK_EXP, .a = 0, .b = 0, .x = nowhere, .y = x.view()},
      bad{.kind = LK_EXP, .a = 0, .b = 0, .x = nowhere, .y = wrong};
  EXPECT_EQ(lk_unary(context.get(), &good), LK_OK) << error();
  EXPECT_EQ(lk_unary(context.get(), &bad), LK_E_INVALID);
  EXPECT_EQ(lk_copy_async(context.get(), LK_COMPUTE, nowhere.data, nowhere.data, 8), LK_OK) << error();
  ASSERT_EQ(lk_measure_end(context.get(), nullptr), LK_OK);
  EXPECT_EQ(layer.backward(context.get()), LK_OK) << error();
  EXPECT_NE(layer.results(), before);
}

TEST_F(Flight, LentWorkspaceIsUsed) {
  Layer layer(context.get(), random);
  const int64_t bytes = workspace_of([&] { ASSERT_EQ(layer.backward(context.get()), LK_OK) << error(); });
  if (bytes == 0) {
    EXPECT_FALSE(records());
    return;
  }
  const int64_t own = lk_memory_peak(context.get());
  const Tensor lent({bytes}, LK_U8);
  const auto before = lent.bytes();
  ASSERT_EQ(lk_set_workspace(context.get(), lent.view().data, bytes), LK_OK) << error();
  ASSERT_EQ(layer.backward(context.get()), LK_OK) << error();
  const auto expected = layer.results();
  EXPECT_NE(lent.bytes(), before);
  EXPECT_EQ(lk_memory_peak(context.get()), own) << "the context took more of its own";
  ASSERT_EQ(lk_set_workspace(context.get(), nullptr, 0), LK_OK) << error();
  layer.poison(context.get());
  ASSERT_EQ(layer.backward(context.get()), LK_OK) << error();
  EXPECT_EQ(layer.results(), expected);
  EXPECT_GT(lk_memory_peak(context.get()), own);
}

TEST_F(Flight, AWorkspaceThatIsTooSmallIsRefused) {
  const Layer layer(context.get(), random);
  const int64_t bytes = workspace_of([&] { ASSERT_EQ(layer.backward(context.get()), LK_OK) << error(); });
  if (bytes == 0) {
    EXPECT_FALSE(records());
    return;
  }
  const int64_t small = bytes - 256;  // one unit of its alignment
  const Tensor lent({bytes}, LK_U8);
  ASSERT_EQ(lk_set_workspace(context.get(), lent.view().data, small), LK_OK) << error();
  EXPECT_EQ(layer.backward(context.get()), LK_E_MEMORY);
  EXPECT_THAT(error(), HasSubstr("lora_backward: the workspace has " + std::to_string(small) +
                                 " bytes, expected at least " + std::to_string(bytes)));
  ASSERT_EQ(lk_set_workspace(context.get(), lent.view().data, bytes), LK_OK) << error();
  EXPECT_EQ(layer.backward(context.get()), LK_OK) << error();
}

// Arguments.

TEST_F(Flight, ArgumentsAreNamed) {
  lk_context* const c = context.get();
  const Event place = event();
  const Staging memory = staging(8);
  float milliseconds = 0;
  void* data = nullptr;
  expect_invalid(lk_host_alloc(c, 8, nullptr), "host_alloc: out is NULL");
  expect_invalid(lk_host_alloc(c, -1, &data), "host_alloc: bytes: expected >= 0, found -1");
  expect_invalid(lk_copy_async(c, 3, memory.get(), memory.get(), 4),
                 "copy_async: queue: expected LK_COMPUTE (0), LK_TRANSFER (1) or LK_RETURN (2), found 3");
  expect_invalid(lk_copy_async(c, LK_COMPUTE, memory.get(), memory.get(), -4), "copy_async: bytes: expected >= 0");
  expect_invalid(lk_copy_async(c, LK_COMPUTE, nullptr, memory.get(), 4), "copy_async: dst is NULL");
  expect_invalid(lk_copy_async(c, LK_COMPUTE, memory.get(), nullptr, 4), "copy_async: src is NULL");
  EXPECT_EQ(lk_copy_async(c, LK_COMPUTE, nullptr, nullptr, 0), LK_OK) << "nothing to copy";
  for (const double rate : {-1.0, 999999.0, nan, infinity})
    expect_invalid(lk_set_link_rate(c, rate), "set_link_rate: bytes_per_second: expected 0 or at least 1e6, found ");
  expect_invalid(lk_event_create(c, nullptr), "event_create: out is NULL");
  expect_invalid(lk_event_record(c, nullptr, LK_COMPUTE), "event_record: event is NULL");
  expect_invalid(lk_event_record(c, place.get(), -1), "event_record: queue: expected");
  expect_invalid(lk_event_wait(c, nullptr, LK_COMPUTE), "event_wait: event is NULL");
  expect_invalid(lk_event_wait(c, place.get(), 7), "event_wait: queue: expected");
  expect_invalid(lk_event_finish(c, nullptr), "event_finish: event is NULL");
  expect_invalid(lk_event_elapsed(c, nullptr, place.get(), &milliseconds), "event_elapsed: start is NULL");
  expect_invalid(lk_event_elapsed(c, place.get(), nullptr, &milliseconds), "event_elapsed: end is NULL");
  expect_invalid(lk_event_elapsed(c, place.get(), place.get(), nullptr), "event_elapsed: milliseconds is NULL");
  expect_invalid(lk_graph_launch(c, nullptr), "graph_launch: graph is NULL");
  expect_invalid(lk_set_workspace(c, nullptr, 8), "set_workspace: bytes: found 8");
  expect_invalid(lk_set_workspace(c, memory.get(), -8), "set_workspace: bytes: found -8");
  EXPECT_EQ(lk_synchronize(nullptr), LK_E_INVALID);
  EXPECT_THAT(std::string(lk_last_error(nullptr)), HasSubstr("synchronize: context is NULL"));
  lk_event_destroy(c, nullptr);
  lk_graph_destroy(c, nullptr);
  lk_host_free(c, nullptr);
}

TEST_F(Flight, ConditionsAreNotNestedAndNeedOneNumber) {
  lk_context* const c = context.get();
  const Tensor one = floats({1}, {1}), two = floats({2}, {1, 2}), number = integers({1}, {1});
  const lk_tensor good = one.view(), many = two.view(), integer = number.view();
  lk_tensor absent = good;
  absent.data = nullptr;
  expect_invalid(lk_if_finite_begin(c, nullptr), "if_finite_begin: value is NULL");
  for (const lk_tensor* value : {&many, &integer, &std::as_const(absent)})
    expect_invalid(lk_if_finite_begin(c, value), "if_finite_begin: value: expected one f32 element");
  expect_invalid(lk_if_finite_end(c), "if_finite_end: without lk_if_finite_begin");
  ASSERT_EQ(lk_if_finite_begin(c, &good), LK_OK) << error();
  expect_invalid(lk_if_finite_begin(c, &good), "if_finite_begin: inside another one");
  ASSERT_EQ(lk_if_finite_end(c), LK_OK) << error();
}

// Forks.

TEST_F(Flight, BranchesBeginTogetherAndEndTogether) {
  const int32_t branches = LK_MAX_BRANCHES, turns = 40;
  const Tensor start({4096}, LK_F32), sum({4096}, LK_F32);
  std::vector<Tensor> own;
  for (int32_t i = 0; i < branches; ++i) own.emplace_back(Shape{4096}, LK_F32);
  const auto add = [&](const Tensor& a, const Tensor& b, const Tensor& y) {
    const lk_binary_params p{.kind = LK_ADD, .a = a.view(), .b = b.view(), .y = y.view()};
    ASSERT_EQ(lk_binary(context.get(), &p), LK_OK) << error();
  };
  // Branch i has 1 + turns + i in the end: each turn reads what the one before wrote.
  const auto work = [&] {
    fill(start, 1);
    ASSERT_EQ(lk_fork(context.get(), branches), LK_OK) << error();
    for (int32_t i = 0; i < branches; ++i) {
      ASSERT_EQ(lk_branch(context.get(), i), LK_OK) << error();
      const Tensor& mine = own[static_cast<size_t>(i)];
      copy(LK_COMPUTE, mine.view().data, start.view().data, 4096 * 4);
      for (int32_t turn = 0; turn < turns + i; ++turn) add(mine, start, mine);
    }
    ASSERT_EQ(lk_join(context.get()), LK_OK) << error();
    fill(sum, 0);
    for (const Tensor& mine : own) add(sum, mine, sum);
  };
  const Values expected(4096, branches * (1 + turns) + branches * (branches - 1) / 2);
  work();
  EXPECT_EQ(load(sum), expected);
  if (!records()) return;
  const Graph graph = record(work);
  for (int i = 0; i < 3; ++i) {
    for (const Tensor& mine : own) fill(mine, -5);
    launch(graph);
    EXPECT_EQ(load(sum), expected);
  }
}

// Layers shared out to branches: what they take, and that they compute what they do alone, with a workspace of the
// context's own, in pieces and as a whole, with one that is lent, and recorded.
class ForkedLayers : public Flight {
 protected:
  std::vector<Layer> layers;

  void expect_apart(int32_t branches, const std::function<int32_t(int32_t)>& branch_of, int64_t wanted) {
    for (int i = 0; i < 6; ++i) layers.emplace_back(context.get(), random);
    const auto forked = [&] {
      ASSERT_EQ(lk_fork(context.get(), branches), LK_OK) << error();
      for (size_t i = 0; i < layers.size(); ++i) {
        ASSERT_EQ(lk_branch(context.get(), branch_of(static_cast<int32_t>(i))), LK_OK) << error();
        ASSERT_EQ(layers[i].backward(context.get()), LK_OK) << error();
      }
      ASSERT_EQ(lk_join(context.get()), LK_OK) << error();
    };
    std::vector<std::vector<std::vector<unsigned char>>> alone;
    for (const Layer& layer : layers) {
      ASSERT_EQ(layer.backward(context.get()), LK_OK) << error();
      alone.push_back(layer.results());
    }
    const auto expect = [&] {
      for (size_t i = 0; i < layers.size(); ++i) EXPECT_EQ(layers[i].results(), alone[i]) << "layer " << i;
    };
    const int64_t one = workspace_of([&] { ASSERT_EQ(layers[0].backward(context.get()), LK_OK) << error(); });
    const int64_t all = workspace_of(forked);
    EXPECT_EQ(all, wanted * one);
    for (int i = 0; i < 2; ++i) forked();
    expect();
    const Tensor memory({std::max<int64_t>(all, 1)}, LK_U8);
    ASSERT_EQ(lk_set_workspace(context.get(), memory.view().data, all), LK_OK) << error();
    forked();
    expect();
    if (records()) {
      const Graph graph = record(forked);
      for (Layer& layer : layers) layer.poison(context.get());
      launch(graph);
      expect();
    }
    ASSERT_EQ(lk_set_workspace(context.get(), nullptr, 0), LK_OK) << error();
  }
};

TEST_F(ForkedLayers, HaveWorkspacesOfTheirOwn) {
  expect_apart(
      6, [](int32_t i) { return i; }, 6);
}

// From the two ends of one workspace, as much as the largest operation of each takes.
TEST_F(ForkedLayers, OfTwoBranchesShareTheirWorkspace) {
  expect_apart(
      2, [](int32_t i) { return i % 3 == 0 ? 1 : 0; }, 2);
}

TEST_F(Flight, ForksAreWithinConditions) {
  const Tensor condition({1}, LK_F32), left({2}, LK_F32), right({2}, LK_F32), before({2}, LK_F32);
  const lk_tensor value = condition.view();
  const auto work = [&] {
    // One in front of it, in the same recording.
    ASSERT_EQ(lk_fork(context.get(), 2), LK_OK) << error();
    ASSERT_EQ(lk_branch(context.get(), 1), LK_OK) << error();
    fill(before, 7);
    ASSERT_EQ(lk_join(context.get()), LK_OK) << error();
    ASSERT_EQ(lk_if_finite_begin(context.get(), &value), LK_OK) << error();
    ASSERT_EQ(lk_fork(context.get(), 2), LK_OK) << error();
    ASSERT_EQ(lk_branch(context.get(), 1), LK_OK) << error();
    fill(right, 1);
    ASSERT_EQ(lk_branch(context.get(), 0), LK_OK) << error();
    fill(left, 1);
    ASSERT_EQ(lk_join(context.get()), LK_OK) << error();
    ASSERT_EQ(lk_if_finite_end(context.get()), LK_OK) << error();
  };
  const auto expect = [&](double number, const std::function<void()>& run) {
    for (const Tensor* tensor : {&left, &right, &before}) fill(*tensor, 0);
    fill(condition, number);
    run();
    EXPECT_EQ(load(before), Values(2, 7));
    for (const Tensor* tensor : {&left, &right}) EXPECT_EQ(load(*tensor), Values(2, std::isfinite(number) ? 1 : 0));
  };
  expect(1, work);
  expect(nan, work);
  if (!records()) return;
  const Graph graph = record(work);
  expect(nan, [&] { launch(graph); });
  expect(1, [&] { launch(graph); });
}

TEST_F(Flight, WrongForksAreRefused) {
  lk_context* const c = context.get();
  const Tensor one = floats({1}, {1});
  const lk_tensor finite = one.view();
  expect_invalid(lk_fork(c, 0), "fork: branches: expected 1 to 16, found 0");
  expect_invalid(lk_fork(c, 17), "found 17");
  expect_invalid(lk_branch(c, 0), "branch: without lk_fork");
  expect_invalid(lk_join(c), "join: without lk_fork");
  ASSERT_EQ(lk_fork(c, 3), LK_OK) << error();
  expect_invalid(lk_fork(c, 2), "fork: between another lk_fork and its lk_join");
  expect_invalid(lk_branch(c, 3), "branch: expected 0 to 2, found 3");
  expect_invalid(lk_branch(c, -1), "found -1");
  expect_invalid(lk_if_finite_begin(c, &finite), "if_finite_begin: between lk_fork and lk_join");
  ASSERT_EQ(lk_join(c), LK_OK) << error();
  if (!records()) return;
  // A recording that is dropped in a fork leaves the context as it was.
  ASSERT_EQ(lk_capture_begin(c), LK_OK) << error();
  ASSERT_EQ(lk_fork(c, 2), LK_OK) << error();
  ASSERT_EQ(lk_branch(c, 1), LK_OK) << error();
  fill(one, 2);
  ASSERT_EQ(lk_capture_end(c, nullptr), LK_OK) << error();
  EXPECT_EQ(load(one), Values{1});
  fill(one, 3);
  EXPECT_EQ(load(one), Values{3});
}

}  // namespace

}  // namespace lk_test::kernels_flight_test
