// Activations in host memory: where they wait between the passes changes no bit of a result, and takes from the device
// what the plan says.
#include "passes/offload.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <map>

#include "ops/ops.h"
#include "run/offloadable.h"
#include "run/predict.h"
#include "support/device.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_step.h"
#include "train/memory_planner.h"

namespace lh::test::offload_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const OpenedModel& toy() {
  static const OpenedModel opened(toy_denoiser(), "auto");
  return opened;
}

int64_t peak_of(const Graph& graph) { return plan_memory(graph, external_to_step(graph)).bytes; }

TEST(Offload, ChangesNoBitOfAStepAndTakesLess) {
  const Model& model = toy().model;
  const int64_t blocks = static_cast<int64_t>(toy_blocks(model).size());
  for (const double recomputed : {0.0, 0.4, 1.0}) {
    const Ran want = run_step(model, {recomputed});
    const int64_t whole = peak_of(toy_graph(model, {recomputed}).graph);
    int64_t before = 0;
    for (const double offloaded : {0.25, 0.5, 1.0}) {
      for (const int64_t streamed : {int64_t{0}, blocks}) {
        SCOPED_TRACE(testing::Message() << recomputed << " made again, " << offloaded << " offloaded, " << streamed
                                        << " streamed");
        const Ran got = run_step(model, {recomputed, offloaded}, streamed);
        EXPECT_EQ(got.loss, want.loss);
        for (const auto& [name, g] : want.gradients) EXPECT_EQ(got.gradients.at(name).data, g.data) << name;
      }
      const Graph graph = toy_graph(model, {recomputed, offloaded}).graph;
      const int64_t bytes = offloaded_bytes(graph);
      EXPECT_GE(bytes, before) << "a larger share is not less";
      before = bytes;
      if (recomputed == 0) {
        EXPECT_LT(peak_of(graph), whole);
      }
    }
    EXPECT_GT(before, 0);
  }
}

// What was sent is not overwritten before it has landed, and no node between reads what came back.
TEST(Offload, EachValueLandsBeforeItsMemoryIsUsedAgain) {
  const Graph graph = toy_graph(toy().model, {0.3, 1}).graph;
  const Plan plan = plan_memory(graph, external_to_step(graph));
  struct Journey {
    size_t sent = 0, landed = 0, back = 0;
    Value value;
  };
  std::map<Value, Journey> journeys;  // by what waits in host memory
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op == &offload_op) journeys[node.outputs[0]] = {.sent = n, .value = node.inputs[0]};
    if (node.op == &landed_op) {
      journeys[node.outputs[0]] = journeys.at(node.inputs[0]);
      journeys[node.outputs[0]].landed = n;
    }
    if (node.op == &fetch_op) journeys.at(node.inputs[0]).back = n;
  }
  size_t returned = 0;
  std::map<uint32_t, PlannedBuffer> buffers;
  for (const PlannedBuffer& buffer : plan.buffers) buffers[buffer.value.id] = buffer;
  for (const auto& [there, j] : journeys) {
    if (j.landed == 0) continue;
    ++returned;
    EXPECT_LT(j.sent, j.landed);
    EXPECT_LT(j.landed, j.back);
    const auto buffer = buffers.find(plan.views[j.value.id].root);
    ASSERT_NE(buffer, buffers.end());
    EXPECT_GE(buffer->second.last, static_cast<int64_t>(j.landed)) << "its place is free too early";
    EXPECT_LT(buffer->second.last, static_cast<int64_t>(j.back)) << "the device has it between the passes";
  }
  EXPECT_GT(returned, 4u);
}

TEST(Offload, IsSpreadEvenlyOverTheBlocks) {
  const Graph graph = toy_graph(toy().model, {}).graph;
  const std::vector<Voyage> all = offloadable(graph, external_to_step(graph));
  const int64_t bytes = offloaded_bytes(graph, all);
  int64_t largest = 0;
  std::map<int64_t, std::vector<Voyage>> by_block;
  for (const Voyage& v : all) {
    by_block[v.block].push_back(v);
    largest = std::max(largest, placed_bytes(graph.desc(v.value).bytes()));
  }
  ASSERT_GT(by_block.size(), 2u);
  for (const double share : {0.2, 0.5, 0.8}) {
    const std::vector<Voyage> some = evenly(graph, all, static_cast<int64_t>(share * static_cast<double>(bytes)));
    double wanted = 0, sent = 0;
    for (const auto& [block, of_block] : by_block) {
      wanted += share * static_cast<double>(offloaded_bytes(graph, of_block));
      for (const Voyage& v : some)
        if (v.block == block) sent += static_cast<double>(placed_bytes(graph.desc(v.value).bytes()));
      EXPECT_NEAR(sent, wanted, static_cast<double>(largest)) << "up to block " << block;
    }
  }
  EXPECT_EQ(evenly(graph, all, bytes).size(), all.size());
  EXPECT_TRUE(evenly(graph, all, 0).empty());
}

// Each way of the link has its own rate, and what is not there in time is waited for.
TEST(Offload, PredictedTimeIsThatOfTheLinkWhereItIsSlow) {
  const Graph graph = toy_graph(toy().model, {0, 1}).graph, plain = toy_graph(toy().model, {}).graph;
  const auto seconds = [](const Graph& g, double link) {
    Plan plan = plan_memory(g, external_to_step(g));
    plan.side_by_side.clear();  // of which copies are borders
    return predict(g, plan, {.products = 1e9, .memory = 1e9, .link = link});
  };
  const double alone = seconds(plain, 1).seconds;
  EXPECT_NEAR(seconds(graph, 1e15).seconds, alone, 0.01 * alone) << "pieces of what came back are views of it";
  const PredictedTime slow = seconds(graph, 1e3);
  EXPECT_GE(slow.seconds, slow.sending / 2);
  EXPECT_GT(slow.waiting, slow.seconds / 2);
}

struct OffloadingRun : ToyRun {
  explicit OffloadingRun(const std::string& memory) { config() += "memory: " + memory + "\n"; }
};

TEST(OffloadedRun, TrainsTheSameLoraAndAKillChangesNothing) {
  const auto lora = [](const std::string& memory) {
    OffloadingRun run(memory);
    expect_trained(run.train());
    return get(run.lora());
  };
  const std::string plain = lora("{offload: 0}");
  EXPECT_EQ(lora("{offload: 100%}"), plain);
  EXPECT_EQ(lora("{offload: 50%, recompute: 40%, stream: 100%}"), plain);
  OffloadingRun run("{offload: 100%, stream: 1}");
  run.set("save_every", "1");
  {
    HostProcess process(run.command());
    reaches(process, run, 3);
    process.send(SIGKILL);
    process.wait();
  }
  run.replace("{offload: 100%, stream: 1}", "{offload: 30%}");
  expect_trained(run.train({"--resume"}));
  EXPECT_EQ(get(run.lora()), plain);
}

TEST(OffloadedRun, IsPlannedAndSaid) {
  OffloadingRun run("{offload: 60%}");
  EXPECT_THAT(expect_trained(run.train({"--dry-run"})).output, HasSubstr("MiB of activations in host memory between"));
  OffloadingRun wrong("{offload: 12}");
  const HostResult result = wrong.train({"--dry-run"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("memory.offload"));
  EXPECT_THAT(result.output, HasSubstr("must be auto, 0, or a share such as 35%"));
}

}  // namespace
}  // namespace lh::test::offload_test
