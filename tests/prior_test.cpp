// What masks hide stays as it was (compile/prior.h): the second part of the loss against its parts and against sums in
// double precision, what it takes of memory, and runs that train with it.
#include "compile/prior.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <cmath>
#include <filesystem>

#include "ops/ops.h"
#include "run/plan.h"
#include "support/image_files.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_graphs.h"

namespace lh::test::prior_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Prior : public ToyGraphs {
 protected:
  Prior() { given_["timestep"] = HostTensor::from_floats({2}, std::vector<float>{0.25f, 0.75f}); }
  // Weights of places are from 0 to 1.
  Tensors run(const Graph& graph) {
    complete(graph);
    for (auto& [name, tensor] : given_)
      if (name.ends_with("loss_weight"))
        for (float& weight : tensor.as<float>()) weight = std::abs(weight);
    return run_graph(device_, graph, given_);
  }
};

// Its gradient is the sum of the gradients of two steps: towards the target, and towards what was said before.
TEST_F(Prior, IsTheSumOfItsParts) {
  for (const double share : {0.0, 1.0}) {
    SCOPED_TRACE(share);
    const StepOptions plain{.by_place = true, .activations = {share}};
    const Graph keeping = build({.by_place = true, .activations = {share}, .keeps_masked = true}).graph;
    EXPECT_FALSE(keeping.inputs.contains("prior.output"));
    const Tensors got = run(keeping), learned = run(build(plain).graph);
    const Tensors before = given_;
    given_["target"] = run(forward(no_adapter)).at("output");
    given_["loss_weight"] = given_.at(prior_weight);
    const Tensors kept = run(build(plain).graph);
    given_ = before;
    EXPECT_NE(kept.at("loss").as<float>()[0], 0);
    EXPECT_EQ(got.at("loss").as<float>()[0], learned.at("loss").as<float>()[0] + kept.at("loss").as<float>()[0]);
    // Gradients of outputs are added before they go back through the model, not after: sums are rounded at other
    // places, a few units of their last place in each of some dozens of products one behind another.
    for (const auto& [name, tensor] : got) {
      if (!name.starts_with("grad.")) continue;
      double error = 0, size = 0;
      for (size_t i = 0; i < tensor.as<float>().size(); ++i) {
        const double one = double{learned.at(name).as<float>()[i]}, other = double{kept.at(name).as<float>()[i]};
        error += std::pow(double{tensor.as<float>()[i]} - one - other, 2);
        size += one * one + other * other;
      }
      EXPECT_LE(std::sqrt(error), 256 * 0x1p-24 * std::sqrt(size)) << name;
    }
    // Nor does it matter where weights are.
    const Streaming streaming = spread(toy_blocks(opened_.model), 3);
    const Graph streamed =
        build({.by_place = true, .activations = {share}, .keeps_masked = true, .streaming = streaming}).graph;
    for (const auto& [name, tensor] : run(streamed)) EXPECT_EQ(tensor.data, got.at(name).data) << name;
  }
}

// The loss in double precision: by squares, and with l1 by absolute values.
TEST_F(Prior, IsMeasuredAsTheLossIs) {
  for (const std::string kind : {"mse", "huber", "l1"}) {
    SCOPED_TRACE(kind);
    given_["loss_delta"] = HostTensor::from_floats({2}, std::vector<float>{0.1f, 0.1f});
    const double
        with =
            double{run(build({.loss = kind, .by_place = true, .keeps_masked = true}).graph).at("loss").as<float>()[0]},
        without = double{run(build({.loss = kind, .by_place = true}).graph).at("loss").as<float>()[0]};
    const HostTensor prior = run(forward(no_adapter)).at("output"), output = run(forward(select())).at("output");
    const std::span<const float> weight = given_.at(prior_weight).as<float>();
    const size_t count = output.as<float>().size(), channels = count / weight.size();
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      const double change = double{output.as<float>()[i]} - double{prior.as<float>()[i]};
      sum += double{weight[i / channels]} * (kind == "l1" ? std::abs(change) : change * change);
    }
    // Sums of float32: as in preserve_test.cpp, and the difference of two losses has the rounding of the larger.
    EXPECT_NEAR(with - without, sum / static_cast<double>(count), 128 * 0x1p-24 * with);
    EXPECT_GT(sum / static_cast<double>(count), 1024 * 0x1p-24 * with) << "else the test says nothing";
  }
}

// The pass in front leaves its output alone.
TEST_F(Prior, TakesTheMemoryOfOnePass) {
  const auto arena = [](const Graph& graph) { return plan_memory(graph, external_to_step(graph)).bytes; };
  const TrainGraph plain = build({.by_place = true}), keeping = build({.by_place = true, .keeps_masked = true});
  const Value output = plain.graph.outputs.at("output");
  EXPECT_LE(arena(keeping.graph), arena(plain.graph) + 3 * plain.graph.desc(output).bytes());
}

// A run whose masks hide some part of two of three images.
class PriorRun : public testing::Test {
 protected:
  PriorRun() {
    for (const char* folder : {"train", "masks"}) fs::create_directories(run_.folder() / folder);
    for (int i = 0; i < 3; ++i) {
      write_file(run_.folder() / fmt::format("train/{}.png", i), encode_png(test_picture(64, 64)));
      write_text(run_.folder() / fmt::format("train/{}.txt", i), fmt::format("number {}", i));
      if (i < 2) write_file(run_.folder() / fmt::format("masks/{}.png", i), encode_png(test_picture(64, 64)));
    }
    run_.replace("  - folder_path: " + std::string(source_dir()) + "/examples/demo/photos\n",
                 fmt::format("  - folder_path: {0}/train\n    mask_path: {0}/masks\n", run_.folder().string()));
    run_.replace("train:\n", "train:\n  inverted_mask_prior: true\n  inverted_mask_prior_multiplier: 3\n");
  }
  std::string trained() {
    fs::remove_all(run_.output());
    expect_trained(run_.train());
    return get(run_.lora());
  }
  ToyRun run_;
};

TEST_F(PriorRun, ResumesToTheBit) {
  const std::string lora = trained();
  fs::remove_all(run_.output());
  HostProcess process(run_.command({"--resume"}));
  if (reaches(process, run_, 3)) process.send(SIGKILL);
  process.wait();
  expect_trained(run_.train({"--resume"}));
  EXPECT_TRUE(get(run_.lora()) == lora);
  // Another multiplier is another run.
  run_.set("inverted_mask_prior_multiplier", "2").set("steps", "8");
  const HostResult other = run_.train({"--resume"});
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.output, HasSubstr("what is hidden is kept, times 3"));
}

TEST_F(PriorRun, AMultiplierOfNothingChangesNothing) {
  const std::string kept = trained();
  run_.set("inverted_mask_prior_multiplier", "0");
  const std::string none = trained();
  run_.set("inverted_mask_prior", "false");
  EXPECT_TRUE(trained() == none);
  EXPECT_FALSE(kept == none);
}

TEST_F(PriorRun, SaysWhatIsKeptAndWhatCannotBe) {
  const auto plan = [&] { return run_host(run_.command({"--dry-run"})); };
  EXPECT_THAT(plan().output, HasSubstr("masks    2 samples; what they hide stays as without adapters, times 3"));
  run_.replace("train:\n", "train:\n  blank_prompt_preservation: true\n");
  const HostResult both = plan();
  EXPECT_EQ(both.code, 2) << both.output;
  EXPECT_THAT(both.output, HasSubstr("train.inverted_mask_prior: true: it is held against"));
  run_.replace("  blank_prompt_preservation: true\n", "");
  run_.replace(fmt::format("    mask_path: {}/masks\n", run_.folder().string()), "");
  EXPECT_THAT(plan().output, HasSubstr("masks    none: there is nothing for inverted_mask_prior to keep"));
}

}  // namespace
}  // namespace lh::test::prior_test
