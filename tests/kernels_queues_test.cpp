// The queues of a context, and their events: copies beside the operations, called and recorded, slower links, and
// streams that are lent. Recording and streams are matters of the CUDA backend; the CPU's tests ask that it says so.
#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "lora_kernels_link.h"
#include "lora_kernels_stream.h"
#include "lora_kernels_trace.h"
#include "support/flight.h"

namespace lk_test::kernels_queues_test {
namespace {

using testing::HasSubstr;

TEST_F(Flight, EventsOrderTheQueues) {
  // There and back through both queues, each waiting for the other's copy, many times: without the order one of the
  // copies takes what the round before left.
  constexpr int64_t count = 1 << 18, bytes = count * 4;
  const Staging source = staging(bytes), target = staging(bytes);
  const Tensor first({count}, LK_F32), second({count}, LK_F32);
  const Event there = event(), back = event();
  for (int round = 0; round < 20; ++round) {
    auto* const values = static_cast<float*>(source.get());
    std::fill_n(values, count, static_cast<float>(round));
    copy(LK_TRANSFER, first.view().data, source.get(), bytes);
    order(there.get(), LK_TRANSFER, LK_COMPUTE);
    const lk_unary_params twice{.kind = LK_AFFINE, .a = 2, .b = 1, .x = first.view(), .y = second.view()};
    ASSERT_EQ(lk_unary(context.get(), &twice), LK_OK) << error();
    order(back.get(), LK_COMPUTE, LK_TRANSFER);
    copy(LK_TRANSFER, target.get(), second.view().data, bytes);
    ASSERT_EQ(lk_event_record(context.get(), there.get(), LK_TRANSFER), LK_OK) << error();
    ASSERT_EQ(lk_event_finish(context.get(), there.get()), LK_OK) << error();
    const auto* const got = static_cast<const float*>(target.get());
    for (const int64_t i : {int64_t{0}, count / 2, count - 1}) ASSERT_EQ(got[i], 2 * round + 1) << "round " << round;
  }
}

TEST_F(Flight, EventsMeasureTime) {
  const Tensor x({1 << 20}, LK_F32);
  const Event start = event(), end = event();
  ASSERT_EQ(lk_event_record(context.get(), start.get(), LK_COMPUTE), LK_OK);
  fill(x, 1);
  ASSERT_EQ(lk_event_record(context.get(), end.get(), LK_COMPUTE), LK_OK);
  ASSERT_EQ(lk_event_finish(context.get(), end.get()), LK_OK);
  float milliseconds = -1;
  ASSERT_EQ(lk_event_elapsed(context.get(), start.get(), end.get(), &milliseconds), LK_OK) << error();
  EXPECT_GT(milliseconds, 0);
  EXPECT_LT(milliseconds, 60e3);
}

TEST_F(Flight, SynchronizeWaitsForBothQueues) {
  constexpr int64_t count = 1 << 20, bytes = count * 4;
  const Staging source = staging(bytes), target = staging(bytes);
  std::fill_n(static_cast<float*>(source.get()), count, 3.0f);
  const Tensor there({count}, LK_F32), other({count}, LK_F32);
  copy(LK_TRANSFER, there.view().data, source.get(), bytes);
  fill(other, 4);
  ASSERT_EQ(lk_synchronize(context.get()), LK_OK);
  EXPECT_EQ(load(there)[count - 1], 3);
  EXPECT_EQ(load(other)[count - 1], 4);
}
// Streamed weights: each piece arrives beside the operations on the one before, in one of two places that are used
// again and again.
TEST_F(Flight, CopiesOfTheTransferQueueAreRecordedBesideTheOperations) {
  constexpr int64_t count = 1 << 16, bytes = count * 4, pieces = 6;
  const Staging source = staging(pieces * bytes);
  const Tensor place[2] = {Tensor({count}, LK_F32), Tensor({count}, LK_F32)};
  std::vector<Tensor> squares;
  std::vector<Event> free, there;
  for (int64_t i = 0; i < pieces; ++i) {
    squares.emplace_back(std::vector<int64_t>{count}, LK_F32);
    free.push_back(event());
    there.push_back(event());
  }
  const auto fetch = [&](int64_t i) {
    order(free[i].get(), LK_COMPUTE, LK_TRANSFER);
    copy(LK_TRANSFER, place[i % 2].view().data, static_cast<float*>(source.get()) + i * count, bytes);
    ASSERT_EQ(lk_event_record(context.get(), there[i].get(), LK_TRANSFER), LK_OK) << error();
  };
  const auto work = [&] {
    fetch(0);
    for (int64_t i = 0; i < pieces; ++i) {
      if (i + 1 < pieces) fetch(i + 1);
      ASSERT_EQ(lk_event_wait(context.get(), there[i].get(), LK_COMPUTE), LK_OK) << error();
      const lk_unary_params square{.kind = LK_SQUARE, .a = 0, .b = 0, .x = place[i % 2].view(), .y = squares[i].view()};
      ASSERT_EQ(lk_unary(context.get(), &square), LK_OK) << error();
    }
  };
  const auto expect = [&](float round, const std::function<void()>& run) {
    SCOPED_TRACE(round);
    for (int64_t i = 0; i < pieces; ++i)
      std::fill_n(static_cast<float*>(source.get()) + i * count, count, round + static_cast<float>(i));
    run();
    for (int64_t i = 0; i < pieces; ++i) {
      const double root = static_cast<double>(round) + static_cast<double>(i);
      EXPECT_EQ(load(squares[i]), Values(count, root * root)) << "piece " << i;
    }
  };
  expect(1, work);
  if (!records()) return;
  const Graph graph = record(work);
  for (const float round : {2.0f, 3.0f, 4.0f}) expect(round, [&] { launch(graph); });
}

// Offloaded activations: what an operation made travels to host memory in the return queue while the next one is made,
// and its place is used again once it has landed.
TEST_F(Flight, CopiesOfTheReturnQueueAreRecordedBesideTheOperations) {
  constexpr int64_t count = 1 << 16, bytes = count * 4, pieces = 6;
  const Staging target = staging(pieces * bytes);
  const Tensor start({count}, LK_F32), place[2] = {Tensor({count}, LK_F32), Tensor({count}, LK_F32)};
  std::vector<Event> made, landed;
  for (int64_t i = 0; i < pieces; ++i) {
    made.push_back(event());
    landed.push_back(event());
  }
  const auto work = [&] {
    for (int64_t i = 0; i < pieces; ++i) {
      if (i >= 2) {
        ASSERT_EQ(lk_event_wait(context.get(), landed[i - 2].get(), LK_COMPUTE), LK_OK) << error();
      }
      const lk_unary_params next{
          .kind = LK_AFFINE, .a = 1, .b = static_cast<float>(i), .x = start.view(), .y = place[i % 2].view()};
      ASSERT_EQ(lk_unary(context.get(), &next), LK_OK) << error();
      order(made[i].get(), LK_COMPUTE, LK_RETURN);
      copy(LK_RETURN, static_cast<float*>(target.get()) + i * count, place[i % 2].view().data, bytes);
      ASSERT_EQ(lk_event_record(context.get(), landed[i].get(), LK_RETURN), LK_OK) << error();
    }
    for (const int64_t i : {pieces - 2, pieces - 1})
      ASSERT_EQ(lk_event_wait(context.get(), landed[i].get(), LK_COMPUTE), LK_OK) << error();
  };
  const auto expect = [&](float round, const std::function<void()>& run) {
    SCOPED_TRACE(round);
    std::memset(target.get(), 0, pieces * bytes);
    fill(start, round);
    run();
    ASSERT_EQ(lk_synchronize(context.get()), LK_OK) << error();
    const auto* const got = static_cast<const float*>(target.get());
    for (int64_t i = 0; i < pieces; ++i)
      EXPECT_TRUE(std::all_of(got + i * count, got + (i + 1) * count,
                              [&](float v) { return v == round + static_cast<float>(i); }))
          << "piece " << i;
  };
  expect(1, work);
  if (!records()) return;
  const Graph graph = record(work);
  for (const float round : {2.0f, 3.0f, 4.0f}) expect(round, [&] { launch(graph); });
}

// The stream of another context stands for that of another program.
TEST_F(Flight, OperationsGoIntoTheStreamThatIsLent) {
  void* own = nullptr;
  if (!records()) {
    EXPECT_EQ(lk_context_use_stream(context.get(), nullptr), LK_E_UNSUPPORTED);
    EXPECT_THAT(error(), HasSubstr("context_use_stream: the cpu backend has no streams"));
    EXPECT_EQ(lk_context_stream(context.get(), &own), LK_E_UNSUPPORTED);
    return;
  }
  const lk_context_params params{.backend = LK_CUDA, .device = 0, .threads = 0, .fast = 0, .tuning_cache = nullptr};
  lk_context* other = nullptr;
  ASSERT_EQ(lk_context_create(&params, &other), LK_OK) << lk_last_error(nullptr);
  void *lent = nullptr, *now = nullptr;
  ASSERT_EQ(lk_context_stream(context.get(), &own), LK_OK) << error();
  ASSERT_EQ(lk_context_stream(other, &lent), LK_OK);
  ASSERT_NE(own, lent);
  const Tensor x({1 << 20}, LK_F32), y({1 << 20}, LK_F32);
  const lk_unary_params twice{.kind = LK_AFFINE, .a = 2, .b = 0, .x = x.view(), .y = y.view()},
      more{.kind = LK_AFFINE, .a = 1, .b = 1, .x = y.view(), .y = x.view()};
  fill(x, 1);
  for (int round = 0; round < 8; ++round) {
    ASSERT_EQ(lk_context_use_stream(context.get(), lent), LK_OK) << error();
    ASSERT_EQ(lk_context_stream(context.get(), &now), LK_OK);
    EXPECT_EQ(now, lent);
    ASSERT_EQ(lk_unary(context.get(), &twice), LK_OK) << error();
    ASSERT_EQ(lk_context_use_stream(context.get(), nullptr), LK_OK) << error();
    ASSERT_EQ(lk_context_stream(context.get(), &now), LK_OK);
    EXPECT_EQ(now, own);
    ASSERT_EQ(lk_unary(context.get(), &more), LK_OK) << error();
  }
  EXPECT_EQ(load(x), Values(1 << 20, 511)) << "x becomes 2 x + 1 eight times, in order";
  ASSERT_EQ(lk_fork(context.get(), 2), LK_OK) << error();
  expect_invalid(lk_context_use_stream(context.get(), lent), "context_use_stream: between lk_fork and lk_join");
  ASSERT_EQ(lk_branch(context.get(), 0), LK_OK);
  ASSERT_EQ(lk_join(context.get()), LK_OK) << error();
  lk_context_destroy(other);
}

// A second context stands for the program that records its stream.
TEST_F(Flight, ACallerMayRecordTheStreamThatItLent) {
  if (!records()) GTEST_SKIP() << "the CPU has no streams";
  const Context other = make_context();
  void* lent = nullptr;
  ASSERT_EQ(lk_context_stream(other.get(), &lent), LK_OK);
  ASSERT_EQ(lk_context_use_stream(context.get(), lent), LK_OK) << error();
  const Tensor a({64, 32}, LK_F32), b({32, 48}, LK_F32), c({64, 48}, LK_F32), d({64, 48}, LK_F32);
  fill(a, 1);
  fill(b, 0.5f);
  const lk_matmul_params product{.a = a.view(), .b = b.view(), .c = c.view()};
  const lk_unary_params more{.kind = LK_AFFINE, .a = 1, .b = 1, .x = c.view(), .y = d.view()};
  for (int round = 0; round < 2; ++round) ASSERT_EQ(lk_matmul(context.get(), &product), LK_OK) << error();
  std::vector<double> milliseconds;
  const auto keep = [](void* user, const lk_call_trace* call) {
    static_cast<std::vector<double>*>(user)->push_back(call->milliseconds);
  };
  ASSERT_EQ(lk_set_trace(context.get(), keep, &milliseconds), LK_OK);
  ASSERT_EQ(lk_capture_begin(other.get()), LK_OK) << lk_last_error(other.get());
  ASSERT_EQ(lk_matmul(context.get(), &product), LK_OK) << error();
  ASSERT_EQ(lk_unary(context.get(), &more), LK_OK) << error();
  lk_graph* graph = nullptr;
  ASSERT_EQ(lk_capture_end(other.get(), &graph), LK_OK) << lk_last_error(other.get());
  EXPECT_EQ(milliseconds, (std::vector<double>{-1, -1})) << "what is recorded has no time";
  fill(a, 2);
  ASSERT_EQ(lk_graph_launch(other.get(), graph), LK_OK) << lk_last_error(other.get());
  EXPECT_EQ(load(d), Values(64 * 48, 33));
  ASSERT_EQ(lk_unary(context.get(), &more), LK_OK) << error();
  EXPECT_GE(milliseconds.back(), 0) << "once it no longer records";
  lk_graph_destroy(other.get(), graph);
  ASSERT_EQ(lk_context_use_stream(context.get(), nullptr), LK_OK) << error();
}

// In pieces, each with its time, and all of the bytes arrive; called and recorded, and as ever once the rate is gone.
TEST_F(Flight, ASlowerLinkTakesItsTimeAndChangesNoBit) {
  constexpr int64_t bytes = 2 * int64_t{LK_LINK_PIECE} + 4 * 1021, pieces = 3;
  constexpr double rate = 2e9;
  const Staging source = staging(bytes);
  const Tensor place({bytes / 4}, LK_F32);
  std::vector<uint32_t> sent(bytes / 4), arrived(bytes / 4);
  const Event free = event(), there = event(), begin = event(), end = event();
  const auto work = [&] {
    order(free.get(), LK_COMPUTE, LK_TRANSFER);
    copy(LK_TRANSFER, place.view().data, source.get(), bytes);
    order(there.get(), LK_TRANSFER, LK_COMPUTE);
  };
  uint32_t round = 0;
  const auto seconds = [&](const std::function<void()>& run) {
    ++round;
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = round + 2654435761u * static_cast<uint32_t>(i);
    std::memcpy(source.get(), sent.data(), bytes);
    EXPECT_EQ(lk_event_record(context.get(), begin.get(), LK_COMPUTE), LK_OK) << error();
    run();
    EXPECT_EQ(lk_event_record(context.get(), end.get(), LK_COMPUTE), LK_OK) << error();
    EXPECT_EQ(lk_download(context.get(), arrived.data(), place.view().data, bytes), LK_OK) << error();
    EXPECT_TRUE(arrived == sent);
    float milliseconds = 0;
    EXPECT_EQ(lk_event_elapsed(context.get(), begin.get(), end.get(), &milliseconds), LK_OK) << error();
    return milliseconds * 1e-3;
  };
  constexpr double least = 0.99 * bytes / rate;  // clocks of the two kinds of measurement differ a little
  seconds(work);
  EXPECT_EQ(lk_link_pieces(context.get()), 0) << "unless it is asked for";
  ASSERT_EQ(lk_set_link_rate(context.get(), rate), LK_OK) << error();
  EXPECT_GE(seconds(work), least);
  EXPECT_EQ(lk_link_pieces(context.get()), pieces);
  if (records()) {
    const Graph graph = record(work);
    for (int i = 0; i < 3; ++i) EXPECT_GE(seconds([&] { launch(graph); }), least);
    EXPECT_EQ(lk_link_pieces(context.get()), 2 * pieces);
  }
  const int64_t before = lk_link_pieces(context.get());
  copy(LK_COMPUTE, place.view().data, source.get(), bytes);
  EXPECT_EQ(lk_link_pieces(context.get()), before) << "copies of the compute queue are its own";
  ASSERT_EQ(lk_set_link_rate(context.get(), 0), LK_OK) << error();
  seconds(work);
  EXPECT_EQ(lk_link_pieces(context.get()), before);
}

}  // namespace

}  // namespace lk_test::kernels_queues_test
