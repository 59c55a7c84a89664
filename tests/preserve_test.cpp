// The second loss of a step (compile/preserve.h): what it computes against its parts and against sums in double
// precision, what it takes of memory, and runs that train with it, resume to the bit and say what they keep.
#include "compile/preserve.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "data/preserved_prompts.h"
#include "ops/ops.h"
#include "run/plan.h"
#include "support/image_files.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_graphs.h"

namespace lh::test::preserve_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Preserving : public ToyGraphs {
 protected:
  void complete(const Graph& graph) {
    ToyGraphs::complete(graph);
    for (const char* name : {"timestep", "loss_weight", preserved_weight})
      if (given_.contains(name)) given_[name] = HostTensor::from_floats({2}, std::vector<float>{0.25f, 0.75f});
  }
  Tensors run(const Graph& graph) {
    complete(graph);
    return run_graph(device_, graph, given_);
  }
  // The same with the other prompts in the place of those that are learned.
  Tensors run_for_kept(const Graph& graph) {
    Tensors before = given_;
    for (const auto& [name, spec] : model().recipe().inputs)
      if (spec.of_prompt()) given_[name] = given_.at(preserved_name(name));
    given_["loss_weight"] = given_.at(preserved_weight);
    complete(graph);
    Tensors outputs = run_graph(device_, graph, given_);
    given_ = std::move(before);
    return outputs;
  }
};

// Three programs one after another give the same bits: nothing but the sums is new.
TEST_F(Preserving, IsTheSumOfItsParts) {
  for (const double share : {0.0, 0.5, 1.0}) {
    SCOPED_TRACE(share);
    const Tensors got = run(build({.weighted = true, .activations = {share}, .preserves = true}).graph);
    const Tensors learned = run(build({.weighted = true, .activations = {share}}).graph);
    const HostTensor target = given_.at("target");
    given_["target"] = run_for_kept(forward(no_adapter)).at("output");
    const Tensors kept = run_for_kept(build({.weighted = true, .activations = {share}}).graph);
    given_["target"] = target;
    EXPECT_NE(kept.at("loss").as<float>()[0], 0);
    for (const auto& [name, tensor] : got) {
      if (name == "output") continue;
      for (size_t i = 0; i < tensor.as<float>().size(); ++i)
        ASSERT_EQ(tensor.as<float>()[i], learned.at(name).as<float>()[i] + kept.at(name).as<float>()[i]) << name;
    }
    EXPECT_EQ(got.at("output").data, learned.at("output").data);
    // Nor does it matter where weights are: blocks come for each of the passes.
    const Streaming streaming = spread(toy_blocks(model()), 3);
    const Graph streamed =
        build({.weighted = true, .activations = {share}, .preserves = true, .streaming = streaming}).graph;
    for (const auto& [name, tensor] : run(streamed)) EXPECT_EQ(tensor.data, got.at(name).data) << name;
    std::map<Value, int> fetches;
    for (const Node& node : streamed.nodes)
      if (node.op == &fetch_op) ++fetches[node.inputs[0]];
    for (const auto& [parameter, count] : fetches)
      EXPECT_TRUE(count >= 3 && count <= 5) << streamed.info(parameter).name << ": " << count;
  }
}

// The loss in double precision, from what the model says in float32, and its slope along a direction.
TEST_F(Preserving, LossAndSlopeAreThoseOfDoublePrecision) {
  const TrainGraph step = build({.preserves = true});
  Tensors got = run(step.graph);
  const Graph adapted = forward(select());
  const HostTensor prior = run_for_kept(forward(no_adapter)).at("output");
  const auto loss = [&] {
    const HostTensor learned = run(adapted).at("output"), kept = run_for_kept(adapted).at("output");
    const std::span<const float> target = given_.at("target").as<float>(),
                                 weight = given_.at(preserved_weight).as<float>();
    const size_t count = learned.as<float>().size(), each = count / weight.size();
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      const double miss = double{learned.as<float>()[i]} - double{target[i]};
      const double change = double{kept.as<float>()[i]} - double{prior.as<float>()[i]};
      sum += miss * miss + double{weight[i / each]} * change * change;
    }
    return sum / static_cast<double>(count);
  };
  // The kernel's sums are of float32: each addition is off by half a unit in the last place at most, of all of them
  // together no more than about the square root of their number.
  EXPECT_NEAR(got.at("loss").as<float>()[0], loss(), 64 * 0x1p-24 * loss());

  // Along d the loss changes by g.d per unit: the central difference is off by the third derivative, which is of the
  // size of the loss times h^2, and by the rounding of the outputs, which is of the size of loss 2^-24 / h.
  double slope = 0;
  Tensors before = given_;
  const double h = 1.0 / 256;
  const auto moved = [&](double by) {
    for (const AdaptedModule& module : step.modules)
      for (const AdaptedTensor& tensor : module.tensors) {
        const std::string& name = step.graph.info(tensor.value).name;
        const HostTensor direction = ramp(step.graph.desc(tensor.value).shape, std::ssize(name));
        for (size_t i = 0; i < direction.as<float>().size(); ++i)
          given_[name].as<float>()[i] =
              before.at(name).as<float>()[i] + static_cast<float>(by) * direction.as<float>()[i] * 0.01f;
      }
    return loss();
  };
  for (const AdaptedModule& module : step.modules)
    for (const AdaptedTensor& tensor : module.tensors) {
      const std::string& name = step.graph.info(tensor.value).name;
      const HostTensor direction = ramp(step.graph.desc(tensor.value).shape, std::ssize(name));
      const HostTensor& gradient = got.at("grad." + name);
      for (size_t i = 0; i < direction.as<float>().size(); ++i)
        slope += double{gradient.as<float>()[i]} * double{direction.as<float>()[i]} * 0.01;
    }
  const double found = (moved(h) - moved(-h)) / (2 * h);
  EXPECT_NEAR(found, slope, std::abs(slope) * h + loss() * 0x1p-20 / h);
  EXPECT_GT(std::abs(slope), 8 * loss() * 0x1p-20 / h) << "else the test says nothing";
}

// Activations of one pass lie where those of the others were; what stays between are the gradients of the second one.
TEST_F(Preserving, TakesTheMemoryOfOnePass) {
  const auto arena = [](const Graph& graph) { return plan_memory(graph, external_to_step(graph)).bytes; };
  const TrainGraph plain = build({}), preserving = build({.preserves = true});
  int64_t gradients = 0;
  for (const AdaptedModule& module : plain.modules)
    for (const AdaptedTensor& tensor : module.tensors)
      gradients += (plain.graph.desc(tensor.value).bytes() + plan_alignment - 1) / plan_alignment * plan_alignment;
  const Value output = plain.graph.outputs.at("output");
  EXPECT_LE(arena(preserving.graph), arena(plain.graph) + gradients + 2 * plain.graph.desc(output).bytes());
}

// Dropout of the second pass is not that of the third.
TEST_F(Preserving, DrawsDropoutAnew) {
  network_.dropout = 0.1;
  const TrainGraph step = build({.preserves = true});
  std::multiset<int64_t> streams;
  for (const Node& node : step.graph.nodes)
    if (node.op == &dropout_mask_op) streams.insert(node.attrs.i("stream"));
  EXPECT_EQ(streams.size(), 2 * step.modules.size());
  for (const int64_t stream : streams) EXPECT_EQ(streams.count(stream), 1u) << stream;
}

// A run with masks, regularization images, accumulation and drawn captions.
class PreservingRun : public testing::Test {
 protected:
  explicit PreservingRun() {
    for (const char* folder : {"train", "masks", "reg"}) fs::create_directories(run_.folder() / folder);
    for (int i = 0; i < 3; ++i) {
      write(fmt::format("train/{}", i), fmt::format("photo of sks, tree, number {}", i));
      write_file(run_.folder() / fmt::format("masks/{}.png", i), encode_png(test_picture(64, 64)));
    }
    write("reg/0", "photo of a cat");
    run_.replace("  - folder_path: " + std::string(source_dir()) + "/examples/demo/photos\n    resolution: 64\n",
                 fmt::format("  - folder_path: {0}/reg\n    resolution: 64\n    is_reg: true\n"
                             "  - folder_path: {0}/train\n    mask_path: {0}/masks\n    resolution: 64\n"
                             "    shuffle_tokens: true\n",
                             run_.folder().string()));
    run_.replace("train:\n", "trigger_word: sks\ntrain:\n  reg_weight: 0.5\n");
    run_.set("gradient_accumulation", "2").set("caption_dropout_rate", "0.2").set("dropout", "0.1");
  }
  void write(const std::string& name, const std::string& caption) {
    write_file(run_.folder() / (name + ".png"), encode_png(test_picture(64, 64)));
    write_text(run_.folder() / (name + ".txt"), caption);
  }
  void preserve(const std::string& keys) { run_.replace("train:\n", "train:\n" + keys); }
  void anew() { fs::remove_all(run_.output()); }
  HostResult plan() { return run_host(run_.command({"--dry-run"})); }

  ToyRun run_;
};

constexpr const char* of_class =
    "  diff_output_preservation: true\n  diff_output_preservation_class: dog\n"
    "  diff_output_preservation_multiplier: 3\n";

TEST_F(PreservingRun, ResumesToTheBit) {
  preserve(of_class);
  expect_trained(run_.train());
  const std::string lora = get(run_.lora());
  anew();
  for (const int64_t step : {1, 3, 4}) {
    HostProcess process(run_.command({"--resume"}));
    if (reaches(process, run_, step)) process.send(SIGKILL);
    process.wait();
  }
  expect_trained(run_.train({"--resume"}));
  EXPECT_TRUE(get(run_.lora()) == lora);
  // Another class is another run.
  run_.replace("class: dog", "class: cat").set("steps", "8");
  const HostResult other = run_.train({"--resume"});
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.output, HasSubstr("the saved run has captions with \"dog\" for the trigger word, times 3, this one "
                                      "captions with \"cat\" for the trigger word, times 3"));
}

TEST_F(PreservingRun, AMultiplierOfNothingChangesNothing) {
  run_.set("dropout", "0");
  expect_trained(run_.train());
  const std::string plain = get(run_.lora());
  const auto trained_with = [&](const std::string& multiplier) {
    anew();
    run_.set("blank_prompt_preservation_multiplier", multiplier);
    expect_trained(run_.train());
    return get(run_.lora());
  };
  preserve("  blank_prompt_preservation: true\n  blank_prompt_preservation_multiplier: 1\n");
  EXPECT_TRUE(trained_with("0") == plain);
  EXPECT_FALSE(trained_with("1") == plain);
}

TEST_F(PreservingRun, StreamedWeightsChangeNoBit) {
  preserve(of_class);
  expect_trained(run_.train());
  const std::string lora = get(run_.lora());
  anew();
  run_.config() += "memory: {stream: 100%}\n";
  EXPECT_THAT(plan().output, HasSubstr("of weights in host memory"));
  expect_trained(run_.train());
  EXPECT_TRUE(get(run_.lora()) == lora);
}

TEST_F(PreservingRun, PlanSaysWhatIsKept) {
  preserve(of_class);
  EXPECT_THAT(plan().output,
              HasSubstr("kept     as without adapters: captions with \"dog\" for the trigger word, times 3; "));
  run_.replace(of_class, "  blank_prompt_preservation: true\n");
  EXPECT_THAT(plan().output, HasSubstr("kept     as without adapters: the empty prompt, times 1; 1 prompts"));
}

TEST_F(PreservingRun, IsRefusedBeforeTheFirstStep) {
  preserve("  diff_output_preservation: true\n  blank_prompt_preservation: true\n");
  const HostResult result = plan();
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("a run has one of them"));
}

TEST(PreservedPrompts, RefuseWhatHasNoMeaning) {
  struct Row {
    std::function<void(Config&)> change;
    std::string said;
  };
  for (const Row& row :
       {Row{[](Config& c) { c.train.blank_prompt_preservation = true; }, "a run has one of them"},
        Row{[](Config& c) { c.train.train_text_encoder = true; }, "train.train_text_encoder changes the encoders"},
        Row{[](Config& c) { c.trigger_word.clear(); },
            "there is no trigger word in whose place the class could stand"}}) {
    Config config;
    config.trigger_word = "sks";
    config.train.diff_output_preservation = true;
    row.change(config);
    EXPECT_THAT(error_of([&] { PreservedPrompts prompts(config); }), HasSubstr(row.said));
  }
  // A word of one dataset is enough; the empty prompt goes with trained text encoders.
  Config config;
  config.datasets.resize(1);
  config.datasets[0].trigger_word = "sks";
  config.train.diff_output_preservation = true;
  EXPECT_TRUE(PreservedPrompts(config).any());
  config.train = {};
  config.train.blank_prompt_preservation = config.train.train_text_encoder = true;
  EXPECT_TRUE(PreservedPrompts(config).any());
  EXPECT_FALSE(PreservedPrompts(Config{}).any());
}

}  // namespace
}  // namespace lh::test::preserve_test
