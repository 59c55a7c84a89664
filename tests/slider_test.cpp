// Sliders (compile/slider.h): a step against its formula in double precision and against its parts, what it takes of
// memory, and runs that train one, resume to the bit and move apart at strength 1 and -1.
#include "compile/slider.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "compile/joined_passes.h"
#include "data/image.h"
#include "data/slider_prompts.h"
#include "ops/ops.h"
#include "run/plan.h"
#include "support/image_files.h"
#include "support/model_files.h"
#include "support/run_host.h"
#include "support/toy_graphs.h"

namespace lh::test::slider_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<double> numbers(const HostTensor& tensor) {
  const std::span<const float> values = tensor.as<float>();
  return {values.begin(), values.end()};
}

double mean_square(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

struct Spread {
  double mean = 0, deviation = 0;
  explicit Spread(const std::vector<double>& values) {
    const auto count = static_cast<double>(values.size());
    for (const double v : values) mean += v / count;
    for (const double v : values) deviation += (v - mean) * (v - mean) / (count - 1);
    deviation = std::sqrt(deviation);
  }
};

// What is learnt at strength 1, at -1, and about the anchor at both.
struct Targets {
  std::vector<double> forth, back, anchor;
};

class Sliding : public ToyGraphs {
 protected:
  Sliding() {
    slider_ = {.positive_prompt = "up",
               .negative_prompt = "down",
               .target_class = "it",
               .anchor_class = "all",
               .guidance_strength = 3,
               .anchor_strength = 0.5};
    const auto each = [](double share) {
      return HostTensor::from_floats({2}, std::vector<float>(2, static_cast<float>(share)));
    };
    given_["timestep"] = HostTensor::from_floats({2}, std::vector<float>{0.25f, 0.75f});
    given_["loss_weight"] = each(class_share);
    given_[anchor_weight] = each(anchor_share * slider_.anchor_strength);
  }
  StepOptions options(double recompute = 0) {
    return {.weighted = true, .activations = {recompute}, .slider = slider_};
  }
  SelectAdapter at(double strength) const { return at_strength(select(), strength); }
  Tensors run(const Graph& graph) {
    complete(graph);
    return run_graph(device_, graph, given_);
  }
  // With the prompt of that front in the place of the class's.
  Tensors run_about(const std::string& front, const Graph& graph) {
    const Tensors before = given_;
    for (const auto& [name, spec] : model().recipe().inputs)
      if (spec.of_prompt() && !front.empty()) given_[name] = given_.at(front + name);
    complete(graph);
    Tensors outputs = run_graph(device_, graph, given_);
    given_ = before;
    return outputs;
  }
  std::vector<double> says(const std::string& front, const Graph& graph) {
    return numbers(run_about(front, graph).at("output"));
  }
  Targets targets() {
    const Graph base = forward(no_adapter);
    const std::vector<double> p = says(positive_front, base), n = says(negative_front, base), u = says("", base);
    const Spread like(u);
    const auto moved = [&](double strength) {
      std::vector<double> t = u;
      for (size_t i = 0; i < t.size(); ++i) t[i] += strength * (p[i] - n[i]);
      const Spread own(t);
      for (double& v : t) v = (v - own.mean) / (own.deviation + 1e-8) * like.deviation + like.mean;
      return t;
    };
    Targets all{moved(slider_.guidance_strength), moved(-slider_.guidance_strength), {}};
    if (slider_.anchor_class) all.anchor = says(anchor_front, base);
    return all;
  }
  // Of which gradients are taken; twice the loss that is shown.
  double loss(const Targets& targets) {
    const Graph forth = forward(at(1)), back = forward(at(-1));
    double sum =
        class_share * (mean_square(says("", forth), targets.forth) + mean_square(says("", back), targets.back));
    if (slider_.anchor_class)
      sum += anchor_share * slider_.anchor_strength *
             (mean_square(says(anchor_front, forth), targets.anchor) +
              mean_square(says(anchor_front, back), targets.anchor));
    return sum;
  }

  SliderConfig slider_;
};

TEST_F(Sliding, LossAndSlopeAreThoseOfDoublePrecision) {
  for (const bool anchored : {true, false}) {
    SCOPED_TRACE(anchored);
    if (!anchored) slider_.anchor_class.reset();
    const TrainGraph step = build(options());
    EXPECT_FALSE(step.graph.inputs.contains("target"));
    EXPECT_EQ(step.graph.inputs.contains(anchor_weight), anchored);
    const Tensors got = run(step.graph);
    const Targets wanted = targets();
    const double whole = loss(wanted);
    // Targets and sums are of float32. Means and deviations of N numbers are off by about sqrt(N) 2^-24 at most, N is
    // 2 x 16 x 16 x 16; a target that is off by e moves a mean square d^2 by 2 d e, no more than e (1 + d^2) for
    // numbers of the size of 1.
    EXPECT_NEAR(got.at("loss").as<float>()[0], whole / 2, 128 * 0x1p-24 * (1 + whole));

    // Along d the loss changes by g.d per unit; the central difference is off as in preserve_test.cpp.
    double slope = 0;
    const Tensors before = given_;
    const double h = 1.0 / 256;
    const auto each = [&](const std::function<void(const std::string&, const HostTensor&)>& apply) {
      for (const AdaptedModule& module : step.modules)
        for (const AdaptedTensor& tensor : module.tensors) {
          const std::string& name = step.graph.info(tensor.value).name;
          apply(name, ramp(step.graph.desc(tensor.value).shape, std::ssize(name)));
        }
    };
    const auto moved = [&](double by) {
      each([&](const std::string& name, const HostTensor& direction) {
        for (size_t i = 0; i < direction.as<float>().size(); ++i)
          given_[name].as<float>()[i] =
              before.at(name).as<float>()[i] + static_cast<float>(by) * direction.as<float>()[i] * 0.01f;
      });
      return loss(wanted);
    };
    each([&](const std::string& name, const HostTensor& direction) {
      const std::span<const float> gradient = got.at("grad." + name).as<float>();
      for (size_t i = 0; i < gradient.size(); ++i)
        slope += double{gradient[i]} * double{direction.as<float>()[i]} * 0.01;
    });
    const double found = (moved(h) - moved(-h)) / (2 * h);
    given_ = before;
    EXPECT_NEAR(found, slope, std::abs(slope) * h + whole * 0x1p-20 / h);
    EXPECT_GT(std::abs(slope), 8 * whole * 0x1p-20 / h) << "else the test says nothing";
  }
}

TEST_F(Sliding, IsTheSumOfItsParts) {
  for (const double share : {0.0, 0.5, 1.0}) {
    SCOPED_TRACE(share);
    const Tensors got = run(build(options(share)).graph);
    const Targets wanted = targets();
    const auto part = [&](double strength, const std::string& front, const std::vector<double>& target) {
      const TrainGraph pass =
          build_train_graph(model(), sizes_, at(strength), {.weighted = true, .activations = {share}});
      const Tensors before = given_;
      given_["target"] = HostTensor(pass.graph.desc(pass.graph.inputs.at("target")));
      std::ranges::transform(target, given_["target"].as<float>().begin(),
                             [](double v) { return static_cast<float>(v); });
      if (!front.empty()) given_["loss_weight"] = given_.at(anchor_weight);
      Tensors outputs = run_about(front, pass.graph);
      given_ = before;
      return outputs;
    };
    const Tensors parts[] = {part(1, "", wanted.forth), part(-1, "", wanted.back), part(1, anchor_front, wanted.anchor),
                             part(-1, anchor_front, wanted.anchor)};
    for (const auto& [name, tensor] : got) {
      if (!name.starts_with("grad.")) continue;
      double error = 0, size = 0;
      for (size_t i = 0; i < tensor.as<float>().size(); ++i) {
        double sum = 0;
        for (const Tensors& one : parts) {
          const double g = double{one.at(name).as<float>()[i]};
          sum += g;
          size += g * g;
        }
        error += std::pow(double{tensor.as<float>()[i]} - sum, 2);
      }
      // Targets of the two sides differ by their rounding, as above.
      EXPECT_LE(std::sqrt(error), 256 * 0x1p-24 * std::sqrt(size)) << name;
    }
    // Nor does it matter where weights are.
    StepOptions streamed = options(share);
    streamed.streaming = spread(toy_blocks(model()), 3);
    for (const auto& [name, tensor] : run(build(streamed).graph)) EXPECT_EQ(tensor.data, got.at(name).data) << name;
  }
}

// Activations of one pass lie where those of the others were. Between passes stay one set of gradients, what is learnt
// and what it is made of; while a pass adds to that set, those of a group of layers are there beside it, which are a
// set at most.
TEST_F(Sliding, TakesTheMemoryOfOnePass) {
  const auto arena = [](const Graph& graph) { return plan_memory(graph, external_to_step(graph)).bytes; };
  const TrainGraph plain = build({.weighted = true}), sliding = build(options());
  int64_t gradients = 0;
  for (const AdaptedModule& module : plain.modules)
    for (const AdaptedTensor& tensor : module.tensors)
      gradients += (plain.graph.desc(tensor.value).bytes() + plan_alignment - 1) / plan_alignment * plan_alignment;
  const Value output = plain.graph.outputs.at("output");
  EXPECT_LE(arena(sliding.graph), arena(plain.graph) + 2 * gradients + 4 * plain.graph.desc(output).bytes());
}

TEST_F(Sliding, DrawsDropoutAnewInEachPass) {
  network_.dropout = 0.1;
  const TrainGraph step = build(options());
  std::multiset<int64_t> streams;
  for (const Node& node : step.graph.nodes)
    if (node.op == &dropout_mask_op) streams.insert(node.attrs.i("stream"));
  EXPECT_EQ(streams.size(), 4 * step.modules.size());
  for (const int64_t stream : streams) EXPECT_EQ(streams.count(stream), 1u) << stream;
}

// A run on images that have no captions.
class SliderRun : public testing::Test {
 protected:
  SliderRun() {
    fs::create_directories(run_.folder() / "photos");
    for (int i = 0; i < 3; ++i)
      write_file(run_.folder() / fmt::format("photos/{}.png", i), encode_png(test_picture(64, 64)));
    run_.replace(std::string(source_dir()) + "/examples/demo/photos", (run_.folder() / "photos").string());
    run_.config() += slider;
  }
  HostResult plan() { return run_host(run_.command({"--dry-run"})); }
  std::string trained() {
    fs::remove_all(run_.output());
    expect_trained(run_.train());
    return get(run_.lora());
  }

  static constexpr const char* slider =
      "slider:\n  positive_prompt: a red circle\n  negative_prompt: a blue circle\n  target_class: a circle\n"
      "  anchor_class: \"\"\n";
  ToyRun run_;
};

TEST_F(SliderRun, ResumesToTheBit) {
  run_.set("gradient_accumulation", "2").set("batch_size", "2").set("dropout", "0.1");
  const std::string lora = trained();
  fs::remove_all(run_.output());
  HostProcess process(run_.command({"--resume"}));
  if (reaches(process, run_, 3)) process.send(SIGKILL);
  process.wait();
  expect_trained(run_.train({"--resume"}));
  EXPECT_TRUE(get(run_.lora()) == lora);
  // Another prompt is another run.
  run_.replace("a blue circle", "a green circle").set("steps", "8");
  const HostResult other = run_.train({"--resume"});
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.output, HasSubstr("the saved run has slider, \"a circle\" to \"a red circle\" at 1, to \"a blue "
                                      "circle\" at -1, guidance strength 3; \"\" stays, times 1, this one"));
}

TEST_F(SliderRun, StreamedWeightsChangeNoBit) {
  const std::string lora = trained();
  run_.config() += "memory: {stream: 100%}\n";
  EXPECT_TRUE(trained() == lora);
}

// Of the same noise, redder at 1 than without and bluer at -1.
TEST_F(SliderRun, MovesApartAtBothStrengths) {
  run_.set("steps", "30").set("save_every", "0").set("sample_every", "30").set("sample_steps", "8");
  run_.set("prompts",
           "[{prompt: a circle, network_multiplier: -1}, {prompt: a circle, network_multiplier: 0}, "
           "{prompt: a circle, network_multiplier: 1}]");
  trained();
  const auto redness = [&](int number) {
    const Image image = decode_image(run_.output() / "samples" / fmt::format("{:09}_{}.png", 30, number));
    double sum = 0;
    for (size_t i = 0; i + 2 < image.rgb.size(); i += 3) sum += image.rgb[i] - image.rgb[i + 2];
    return 3 * sum / static_cast<double>(image.rgb.size());
  };
  const double towards = redness(2) - redness(1), away = redness(0) - redness(1);
  constexpr double seen = 5;  // of 255 steps
  EXPECT_GT(towards, seen);
  EXPECT_LT(away, -seen);
}

TEST_F(SliderRun, SaysWhatIsDoneAndWhatCannotBe) {
  EXPECT_THAT(
      plan().output,
      HasSubstr("slider   \"a circle\" to \"a red circle\" at 1, to \"a blue circle\" at -1, guidance strength 3; "
                "\"\" stays, times 1; captions, masks and weights of the loss are not used"));
  run_.replace("train:\n", "train:\n  loss: l1\n");
  const HostResult other = plan();
  EXPECT_EQ(other.code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("its loss is its own, beside which there is no train.loss"));
}

TEST(SliderPrompts, RefuseWhatHasNoMeaning) {
  struct Row {
    std::function<void(Config&)> change;
    std::string said;
  };
  const auto begun = [] {
    Config config;
    config.slider = {.positive_prompt = "a", .negative_prompt = "b", .target_class = "c", .anchor_class = {}};
    return config;
  };
  for (const Row& row :
       {Row{[](Config& c) { c.slider.negative_prompt = "a"; }, "are both \"a\", expected two prompts"},
        Row{[](Config& c) { c.slider.positive_prompt = c.slider.negative_prompt = ""; },
            "there is nothing that the class is moved to"},
        Row{[](Config& c) { c.train.train_text_encoder = true; }, "train.train_text_encoder: true"},
        Row{[](Config& c) { c.train.blank_prompt_preservation = true; }, "train.blank_prompt_preservation: true"},
        Row{[](Config& c) { c.train.diff_output_preservation = true; }, "train.diff_output_preservation: true"},
        Row{[](Config& c) { c.train.inverted_mask_prior = true; }, "train.inverted_mask_prior: true"},
        Row{[](Config& c) { c.train.do_differential_guidance = true; }, "train.do_differential_guidance: true"},
        Row{[](Config& c) { c.train.max_loss = 1; }, "train.max_loss"},
        Row{[](Config& c) { c.train.validation_split = 0.1; }, "train.validation_split"}}) {
    Config config = begun();
    row.change(config);
    EXPECT_THAT(error_of([&] { SliderPrompts prompts(config); }), HasSubstr(row.said));
  }
  Config config = begun();
  EXPECT_THAT(SliderPrompts(config).all(), testing::ElementsAre("c", "a", "b"));
  config.slider.anchor_class = "a";
  EXPECT_THAT(SliderPrompts(config).all(), testing::ElementsAre("c", "a", "b"));
  EXPECT_TRUE(SliderPrompts(Config{}).all().empty());
}

}  // namespace
}  // namespace lh::test::slider_test
