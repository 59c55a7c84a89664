// Text encoders as part of the training step: what the denoiser is fed, gradients through both, learning rates.
#include <gmock/gmock.h>

#include "run/groups.h"
#include "run/weights.h"
#include "run/workspace.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "train/step.h"

namespace lh::text_training_test {
namespace {

using namespace test;

constexpr int64_t rank = 2;

class TextTraining : public ::testing::Test {
 protected:
  TextTraining() : model(built_plugins(), config(), ""), device(tested_device()) {}
  static ModelConfig config() {
    ModelConfig config;
    config.name_or_path = toy_folder() / "flux_toy.safetensors";
    config.given["clip_path"] = {toy_folder() / "clip_l.safetensors"};
    config.given["t5_path"] = {toy_folder() / "t5xxl.safetensors"};
    return config;
  }
  static HostTensor ids(const Desc& desc, int64_t seed) {
    HostTensor out(desc);
    const HostTensor values = ramp(desc.shape, seed);
    for (size_t i = 0; i < out.as<int32_t>().size(); ++i)
      out.as<int32_t>()[i] = static_cast<int32_t>(500 + 400 * values.as<float>()[i]);
    return out;
  }
  Tensors inputs(const Graph& graph) const {
    Tensors given;
    int64_t seed = 0;
    for (const auto& [name, value] : graph.inputs) {
      const Desc& desc = graph.desc(value);
      ++seed;
      given[name] = desc.dtype == DType::i32 ? ids(desc, seed) : ramp(desc.shape, seed);
    }
    const float half = 0.5f, one = 1;
    given["timestep"] = HostTensor::from_floats({1}, std::span(&half, 1));
    if (given.contains("loss_scale")) given["loss_scale"] = HostTensor::from_floats({1}, std::span(&one, 1));
    return given;
  }
  // The graph on the toy's weights and the given adapters.
  Tensors run(const Graph& graph, const Tensors& given, const Tensors& adapters = {}) {
    if (!weights) {
      const auto none = [](const std::string&) -> const AdapterSpec* { return nullptr; };
      const TrainGraph everything = build_train_graph(model, sizes, none, {.text_encoders = true});
      weights.emplace(device, model.checkpoint(), everything.graph);
    }
    Externals externals = weights->bind(graph);
    std::vector<DeviceMemory> memory;
    memory.reserve(adapters.size());
    for (const auto& [name, tensor] : adapters) {
      memory.emplace_back(device, tensor.desc.bytes(), name);
      memory.back().upload(0, tensor.data.data(), tensor.desc.bytes());
      externals[graph.params.at(name)] = memory.back().data();
    }
    OwnedProgram program(device, graph, externals, "test");
    for (const auto& [name, value] : graph.inputs) program->set_input(name, given.at(name));
    program->run();
    Tensors out;
    for (const auto& [name, value] : graph.outputs) out[name] = program->output(name);
    return out;
  }
  TrainGraph train_graph() const {
    static const AdapterSpec spec{rank, 4, 0, 0};
    const auto two = [](const std::string& module) {
      const bool chosen = module == "clip_l:text_model.encoder.layers.0.self_attn.q_proj" ||
                          module == "clip_l:text_model.encoder.layers.0.mlp.fc2";
      return chosen ? &spec : nullptr;
    };
    return build_train_graph(model, sizes, two, {.text_encoders = true});
  }
  static Tensors adapters(const TrainGraph& train) {
    Tensors values;
    for (const AdaptedModule& m : train.modules)
      for (const AdaptedTensor& t : m.tensors) {
        const ValueInfo& info = train.graph.info(t.value);
        HostTensor tensor = ramp(info.desc.shape, static_cast<int64_t>(values.size()) + 20);
        for (float& x : tensor.as<float>()) x *= 0.1f;
        values[info.name] = std::move(tensor);
      }
    return values;
  }

  Model model;
  Device device;
  std::optional<Weights> weights;  // of the whole chain, loaded once
  Sizes sizes{{"batch", 1}, {"height", 8}, {"width", 8}, {"text_length", 16}, {"clip_l.length", 12}, {"t5.length", 16}};
};

TEST_F(TextTraining, TheDenoiserIsFedWhatTheConditionerGives) {
  const auto none = [](const std::string&) -> const AdapterSpec* { return nullptr; };
  const Graph conditioner = model.build("conditioner", sizes, DType::f32);
  const TrainGraph apart = build_train_graph(model, sizes, none, {}),
                   chain = build_train_graph(model, sizes, none, {.text_encoders = true});
  EXPECT_FALSE(chain.graph.inputs.contains("text"));
  EXPECT_FALSE(chain.graph.inputs.contains("pooled"));
  Tensors given = inputs(chain.graph);
  const Tensors text = run(conditioner, given);
  const Tensors together = run(chain.graph, given);
  given["text"] = text.at("text");
  given["pooled"] = text.at("pooled");
  EXPECT_EQ(run(apart.graph, given).at("output").data, together.at("output").data);
}

// d loss / d adapter by central differences, along the gradient itself.
TEST_F(TextTraining, GradientsReachTheTextEncoder) {
  const TrainGraph train = train_graph();
  ASSERT_EQ(train.modules.size(), 2u);
  const Tensors given = inputs(train.graph);
  Tensors values = adapters(train);
  const Tensors at = run(train.graph, given, values);
  for (const auto& [name, value] : Tensors(values)) {
    const HostTensor& gradient = at.at("grad." + name);
    double square = 0;
    for (const float g : gradient.as<float>()) square += double{g} * g;
    ASSERT_GT(square, 0) << name;
    const double length = std::sqrt(square), h = 0.02;
    double loss[2];
    for (int side = 0; side < 2; ++side) {
      HostTensor moved = value;
      for (size_t i = 0; i < moved.as<float>().size(); ++i)
        moved.as<float>()[i] += static_cast<float>((side == 0 ? h : -h) * gradient.as<float>()[i] / length);
      values[name] = moved;
      loss[side] = run(train.graph, given, values).at("loss").as<float>()[0];
    }
    values[name] = value;
    // The loss is a float32 of order 1: its rounding over 2 h is the error that a difference cannot go below.
    const double noise = 8 * 6e-8 * std::abs(loss[0]) / (2 * h);
    EXPECT_NEAR((loss[0] - loss[1]) / (2 * h), length, 0.02 * length + noise) << name;
  }
}

TEST_F(TextTraining, RecomputationChangesNothing) {
  static const AdapterSpec spec{rank, 4, 0, 0};
  const auto all = [](const std::string& module) { return component_of(module) == "clip_l" ? &spec : nullptr; };
  const TrainGraph plain = build_train_graph(model, sizes, all, {.text_encoders = true}),
                   frugal = build_train_graph(model, sizes, all, {.activations = {1}, .text_encoders = true});
  EXPECT_GT(total(frugal.activations.again), 0);
  const Tensors given = inputs(plain.graph), values = adapters(plain);
  const Tensors want = run(plain.graph, given, values), got = run(frugal.graph, given, values);
  for (const auto& [name, tensor] : want) EXPECT_EQ(got.at(name).data, tensor.data) << name;
}

// Groups of a run with these settings: name and learning rate of each, in the order of the tensors.
std::vector<std::pair<std::string, double>> groups_of(const TrainSection& train) {
  std::vector<TrainedTensor> tensors;
  for (const char* module : {"", "clip_g:", "clip_l:"})
    for (const int32_t role : {LH_ROLE_DOWN, LH_ROLE_UP})
      tensors.push_back({{.name = std::string(module) + "x",
                          .module = std::string(module) + "blocks.0.q",
                          .role = role,
                          .shape = {2, 3}},
                         false,
                         0});
  const OptimizerRules rules(built_plugins(), train);
  const ParameterGroups groups(rules, train, tensors);
  std::vector<std::pair<std::string, double>> found;
  for (size_t i = 0; i < groups.groups.size(); ++i) found.emplace_back(groups.groups[i].name, groups.lr[i]);
  return found;
}

TEST(ParameterGroups, AreComponentsAndRoles) {
  using Groups = std::vector<std::pair<std::string, double>>;
  TrainSection train;
  train.lr = 1e-3;
  EXPECT_EQ(groups_of(train), (Groups{{"denoiser", 1e-3}, {"clip_g", 1e-3}, {"clip_l", 1e-3}}));
  train.text_encoder_lr = {1e-5};
  EXPECT_EQ(groups_of(train), (Groups{{"denoiser", 1e-3}, {"clip_g", 1e-5}, {"clip_l", 1e-5}}));
  train.text_encoder_lr = {1e-5, 2e-5};
  train.loraplus_lr_ratio = 16;
  EXPECT_EQ(groups_of(train), (Groups{{"denoiser.down", 1e-3},
                                      {"denoiser.up", 16e-3},
                                      {"clip_g.down", 1e-5},
                                      {"clip_g.up", 16e-5},
                                      {"clip_l.down", 2e-5},
                                      {"clip_l.up", 32e-5}}));
  train.text_encoder_lr = {1e-5, 2e-5, 3e-5};
  EXPECT_EQ(error_of([&] { groups_of(train); }),
            "train.text_encoder_lr: expected one number or 2, one for each text encoder, found 3");
}

// The longest pattern counts; each rate of a component is a group of its own, which LoRA+ divides as others.
TEST(ParameterGroups, ModulesHaveTheirRates) {
  using Groups = std::vector<std::pair<std::string, double>>;
  TrainSection train;
  train.lr = 0.5;
  train.module_lr_ratio = {{"clip_.*", 0.5}, {"clip_l:blocks\\..*", 2}};
  EXPECT_EQ(groups_of(train), (Groups{{"denoiser", 0.5}, {"clip_g.lr_0.5", 0.25}, {"clip_l.lr_2", 1}}));
  train.module_lr_ratio = {{"blocks\\.[0-4]\\..*", 0.5}, {"clip_.*", 1}};
  train.loraplus_lr_ratio = 4;
  EXPECT_EQ(groups_of(train), (Groups{{"denoiser.down.lr_0.5", 0.25},
                                      {"denoiser.up.lr_0.5", 1},
                                      {"clip_g.down", 0.5},
                                      {"clip_g.up", 2},
                                      {"clip_l.down", 0.5},
                                      {"clip_l.up", 2}}));
  for (const auto& [pattern, text] : std::map<std::string, const char*>{
           {"block\\..*", "no trained module is like 'block\\..*'. Did you mean blocks?"},
           {"unet", "One of them is blocks.0.q"},
           {"a(", "'a(' is no regular expression"}}) {
    train.module_lr_ratio = {{pattern, 2}};
    EXPECT_THAT(error_of([&] { groups_of(train); }),
                testing::AllOf(testing::StartsWith("train.module_lr_ratio: "), testing::HasSubstr(text)));
  }
}

TEST(ParameterGroups, RolesHaveTheirWeightDecay) {
  TrainSection train;
  train.role_weight_decay = {{"up", 0.5}};
  const OptimizerRules rules(built_plugins(), train);
  EXPECT_EQ(rules.of(LH_ROLE_UP).options(), "betas=[0.9, 0.999] eps=1e-08 weight_decay=0.5 state_dtype=fp32");
  EXPECT_EQ(rules.of(LH_ROLE_DOWN).options(), "betas=[0.9, 0.999] eps=1e-08 weight_decay=0.01 state_dtype=fp32");
  train.optimizer = "prodigy";
  EXPECT_NO_THROW(OptimizerRules(built_plugins(), train));
}

// Trained tensors of each component lie together, the denoiser's first, whatever order the graph has; within it those
// of one role, and of these those of one shape.
TEST(Adapters, LieByComponentRoleAndShape) {
  Graph graph(DType::f32);
  std::vector<AdaptedModule> modules;
  int64_t in = 40;
  for (const char* name : {"b:x", "y", "a:x", "b:z", "w"}) {
    const Value down = graph.add_param(down_name(name), {DType::f32, {2, in}});
    const Value up = graph.add_param(up_name(name), {DType::f32, {40, 2}});
    modules.push_back({.name = name,
                       .tensors = {{down, down_key, TensorRole::down}, {up, up_key, TensorRole::up}},
                       .rank = 2,
                       .alpha = 1});
    in = 72 - in;  // 40, 32, 40, ...
  }
  const Adapters adapters(graph, modules);
  std::vector<TrainedTensor> trained = adapters.trained();
  std::ranges::sort(trained, {}, &TrainedTensor::offset);
  std::vector<std::string> order;
  int64_t end = 0;
  for (const TrainedTensor& tensor : trained) {
    EXPECT_EQ(tensor.offset, end);
    end += (tensor.parameter.shape.numel() + 63) / 64 * 64;
    order.push_back(fmt::format("{} {}", tensor.parameter.module, tensor.parameter.role));
  }
  EXPECT_EQ(end, adapters.whole().shape[0]);
  EXPECT_THAT(order,
              ::testing::ElementsAre("y 1", "w 1", "y 2", "w 2", "a:x 1", "a:x 2", "b:z 1", "b:x 1", "b:x 2", "b:z 2"));
}

}  // namespace
}  // namespace lh::text_training_test
