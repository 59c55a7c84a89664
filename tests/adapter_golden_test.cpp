// Adapters against LyCORIS, PEFT and sd-scripts (data/golden/adapters): a layer with an adapter, built by the plugin
// through the passes of training, gives the output, the loss, the gradients and the trained tensors of those packages,
// and its file, read back and merged, gives their weight.
#include <gmock/gmock.h>

#include <cmath>

#include "io/lora_delta.h"
#include "io/lora_file.h"
#include "ops/ops.h"
#include "passes/adapt.h"
#include "passes/differentiate.h"
#include "passes/layout.h"
#include "passes/prune.h"
#include "plugin/adapter.h"
#include "support/device.h"
#include "support/given_options.h"
#include "support/golden.h"
#include "support/graph_run.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "support/paths.h"

namespace lh::test::adapter_golden_test {
namespace {

namespace fs = std::filesystem;
using golden::Case;

const fs::path data = fs::path(test_data()) / "golden" / "adapters";

struct Row {
  const char* name;
  const char* adapter;  // the plugin's
  const char* options;  // of network_kwargs
};

// Names of PEFT's tensors here.
std::string our_key(const std::string& key) {
  static const std::map<std::string, std::string> names{{"lora_A.weight", "lora_down.weight"},
                                                        {"lora_B.weight", "lora_up.weight"},
                                                        {"lora_magnitude_vector", "dora_scale"}};
  const auto found = names.find(key);
  return found == names.end() ? key : found->second;
}

const Row rows[] = {
    {"dora_input_axis_conv", "dora", "{}"},
    {"dora_input_axis_linear", "dora", "{}"},
    {"dora_output_axis_conv", "dora", "{wd_on_out: true}"},
    {"dora_output_axis_linear", "locon", "{weight_decompose: true, wd_on_out: true}"},
    {"dora_loha", "loha", "{weight_decompose: true, wd_on_out: true}"},
    {"dora_lokr", "lokr", "{weight_decompose: true, factor: 4}"},
    {"locon_conv_tucker", "locon", "{use_tucker: true}"},
    {"loha_conv", "loha", "{}"},
    {"loha_conv_tucker", "loha", "{use_tucker: true}"},
    {"loha_linear", "loha", "{}"},
    {"lokr_conv", "lokr", "{factor: 2}"},
    {"lokr_conv_tucker", "lokr", "{factor: 2, use_tucker: true}"},
    {"lokr_full", "lokr", "{factor: 8, full_matrix: true}"},
    {"lokr_linear", "lokr", "{factor: 4}"},
    {"lokr_linear_decompose_both", "lokr", "{decompose_both: true}"},
    {"peft_dora_conv", "dora", "{wd_on_out: true, detach_norm: true}"},
    {"peft_dora_linear", "dora", "{wd_on_out: true, detach_norm: true}"},
    {"peft_loha_conv", "loha", "{use_tucker: true}"},
    {"peft_lokr_linear", "lokr", "{factor: 4}"},
    {"rank_dropout_kohya_conv", "locon", "{}"},
    {"rank_dropout_kohya_linear", "lora", "{}"},
    {"rank_dropout_locon_bypass", "locon", "{bypass_mode: true, rank_dropout_scale: true}"},
    {"rank_dropout_loha", "loha", "{rank_dropout_scale: true}"},
    {"rank_dropout_lokr", "lokr", "{factor: 4}"},
    {"rslora_lycoris", "lora", "{rs_lora: true}"},
    {"rslora_peft", "lora", "{rs_lora: true}"},
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

// A tensor in the order of memory of a graph's value, and back.
HostTensor in_memory(const Graph& graph, Value v, const HostTensor& t) {
  if (!graph.info(v).channels_last) return t;
  HostTensor out = nchw_to_nhwc(t);
  out.desc.shape = t.desc.shape;
  return out;
}
HostTensor in_file(const Graph& graph, Value v, HostTensor t) {
  if (!graph.info(v).channels_last) return t;
  const Shape s = t.desc.shape;  // [O, I, KH, KW]
  t.desc.shape = Shape{s[0], s[2], s[3], s[1]};
  return nhwc_to_nchw(t);
}

// The layer of a case with its adapter, as a training step has it.
class AdaptedCase {
 public:
  explicit AdaptedCase(const Row& row)
      : case_(data / row.name), rule_(built_plugins(), row.adapter, given_options(row.options)) {
    build();
    differentiate_loss();
  }

  const Case& golden() const { return case_; }
  const AdaptedModule& module() const { return module_; }
  // Values of the case in this adapter's shapes, by our key.
  Tensors tensors() const {
    Tensors all;
    for (const auto& [key, spec] : case_.json.at("adapter").at("tensors").items())
      for (const AdaptedTensor& tensor : module_.tensors)
        if (tensor.key == our_key(key)) {
          HostTensor value = case_.tensor(key, spec);
          EXPECT_EQ(value.desc.shape.numel(), graph_.desc(tensor.value).shape.numel()) << key;
          value.desc.shape = graph_.desc(tensor.value).shape;
          all[tensor.key] = std::move(value);
        }
    return all;
  }

  // One step's output, loss and gradients, with names as in the case.
  Tensors step(Device& device, const Tensors& trained) const {
    Tensors given{{"x", case_.input("x")}, {"target", case_.input("target")}, {"loss_scale", one()}};
    for (const auto& [name, value] : graph_.params) {
      const std::string key = name.substr(2);
      const auto found = trained.find(key);
      const HostTensor t = found != trained.end() ? found->second : case_.tensor(key, case_.json.at("weights").at(key));
      given[name] = in_memory(graph_, value, t);
    }
    for (const auto& [name, value] : graph_.inputs)
      if (name.starts_with("u.")) given[name] = kept(name, graph_.desc(value).shape);
    Tensors got = run_graph(device, graph_, given);
    for (const AdaptedTensor& tensor : module_.tensors) {
      HostTensor& gradient = got.at("grad." + tensor.key);
      gradient = in_file(graph_, tensor.value, std::move(gradient));
    }
    return got;
  }

 private:
  static HostTensor one() {
    const float value = 1;
    return HostTensor::from_floats({1}, std::span(&value, 1));
  }

  double p() const { return case_.json.at("adapter").at("options").value("rank_dropout", 0.0); }

  // What dropout_mask gives for these uniform numbers.
  HostTensor kept(const std::string& name, const Shape& shape) const {
    HostTensor mask = case_.tensor(name, case_.json.at("inputs").at(name));
    mask.desc.shape = shape;
    for (float& u : mask.as<float>()) u = u > p() ? static_cast<float>(1 / (1 - p())) : 0.0f;
    return mask;
  }

  void build() {
    const auto& layer = case_.json.at("layer");
    const HostTensor x = case_.input("x");
    const Value in = graph_.add_input("x", x.desc);
    std::vector<Value> operands{in};
    for (const char* part : {"weight", "bias"}) {
      if (!case_.json.at("weights").contains(part)) continue;
      const auto shape = case_.json.at("weights").at(part).at("shape").get<std::vector<int64_t>>();
      operands.push_back(graph_.add_param(std::string("m.") + part, {DType::f32, Shape(shape)}));
    }
    const bool conv = layer.at("type") == "conv2d";
    const int64_t pad = layer.value("padding", 0);
    const Attrs attrs = conv ? Attrs{{"stride", layer.at("stride").get<int64_t>()},
                                     {"pad", std::vector<int64_t>(4, pad)},
                                     {"groups", int64_t{1}}}
                             : Attrs{};
    graph_.outputs["output"] = graph_.add(conv ? conv2d_op : linear_op, operands, attrs, 0)[0];
    settle_layouts(graph_);
    const auto& options = case_.json.at("adapter").at("options");
    const int64_t rank = options.value("lora_dim", options.value("rank", options.value("r", int64_t{0})));
    const double alpha = options.value("alpha", options.value("lora_alpha", 0.0));
    const AdapterSpec spec{.rank = rank, .alpha = alpha, .rank_dropout = p(), .rule = &rule_};
    const auto modules = adapt(
        graph_, [&](const std::string&) { return &spec; }, true);
    ASSERT_EQ(modules.size(), 1u);
    module_ = modules[0];
    // The case's own draws instead of the host's.
    int draws = 0;
    for (Node& node : graph_.nodes)
      if (node.op == &dropout_mask_op) {
        const std::string name = fmt::format("u.{}", draws++);
        graph_.inputs[name] = node.outputs[0];
        graph_.info(node.outputs[0]).kind = ValueKind::input;
        graph_.info(node.outputs[0]).name = name;
      }
    std::erase_if(graph_.nodes, [](const Node& node) { return node.op == &dropout_mask_op; });
    graph_.inputs.erase("step");
  }

  void differentiate_loss() {
    const Value output = graph_.outputs.at("output"), target = graph_.add_input("target", graph_.desc(output));
    const Value loss = graph_.add(mse_op, {output, target, {}}, {}, 0)[0];
    graph_.outputs["loss"] = loss;
    prune(graph_);
    std::vector<Value> trained;
    for (const AdaptedTensor& tensor : module_.tensors) trained.push_back(tensor.value);
    const auto gradients = differentiate(graph_, loss, graph_.add_input("loss_scale", {DType::f32, {1}}), trained);
    for (const AdaptedTensor& tensor : module_.tensors)
      graph_.outputs["grad." + tensor.key] = gradients.at(tensor.value);
    prune(graph_);
  }

  Case case_;
  Adapter rule_;
  Graph graph_{DType::f32};
  AdaptedModule module_;
};

// Judges one tensor as the README says.
void expect_golden(const Case& c, const std::string& name, const HostTensor& got) {
  const bool loose = name.starts_with("grad.") || name.starts_with("trained.");
  const double limit = std::max(4 * c.json.at("fp32_error").value(name, 0.0), loose ? 1e-5 : 2e-6);
  EXPECT_LE(golden::relative_error(got.as<float>(), c.expected(name).as<float>()), limit) << c.name << " " << name;
}

bool is_image(const HostTensor& t) { return t.desc.shape.rank() == 4; }

class AdapterGolden : public testing::TestWithParam<Row> {};

TEST_P(AdapterGolden, GiveTheOutputTheLossAndTheGradients) {
  Device device(tested_device());
  const AdaptedCase adapted(GetParam());
  const Case& c = adapted.golden();
  const Tensors trained = adapted.tensors();
  ASSERT_EQ(trained.size(), c.json.at("adapter").at("tensors").size()) << "tensors with other names";
  ASSERT_EQ(trained.size(), adapted.module().tensors.size());
  Tensors got = adapted.step(device, trained);
  HostTensor& output = got.at("output");
  expect_golden(c, "output", is_image(output) ? nhwc_to_nchw(output) : output);
  expect_golden(c, "loss", got.at("loss"));
  for (const auto& [key, spec] : c.json.at("adapter").at("tensors").items())
    expect_golden(c, "grad." + key, got.at("grad." + our_key(key)));
}

// torch.optim.AdamW in float64 on the gradients of the graph; the tensors are rounded to float32 after each step.
TEST_P(AdapterGolden, TrainLikeThePackage) {
  Device device(tested_device());
  const AdaptedCase adapted(GetParam());
  const Case& c = adapted.golden();
  if (!c.json.contains("optimizer")) return;  // cases of dropout have no trained tensors
  const auto& o = c.json.at("optimizer");
  const double lr = o.at("lr"), eps = o.at("eps"), decay = o.at("weight_decay"), b1 = o.at("betas")[0],
               b2 = o.at("betas")[1];
  Tensors trained = adapted.tensors();
  std::map<std::string, std::vector<double>> m, v;
  std::vector<float> losses;
  const int steps = o.at("steps");
  for (int t = 1; t <= steps; ++t) {
    const Tensors got = adapted.step(device, trained);
    losses.push_back(got.at("loss").as<float>()[0]);
    for (auto& [key, tensor] : trained) {
      const auto g = got.at("grad." + key).as<float>();
      m[key].resize(g.size()), v[key].resize(g.size());
      for (size_t i = 0; i < g.size(); ++i) {
        m[key][i] = b1 * m[key][i] + (1 - b1) * g[i];
        v[key][i] = b2 * v[key][i] + (1 - b2) * g[i] * g[i];
        const double step = m[key][i] / (1 - std::pow(b1, t)) / (std::sqrt(v[key][i] / (1 - std::pow(b2, t))) + eps);
        float& p = tensor.as<float>()[i];
        p = static_cast<float>(p * (1 - lr * decay) - lr * step);
      }
    }
  }
  expect_golden(c, "losses", HostTensor::from_floats({steps}, losses));
  for (const auto& [key, spec] : c.json.at("adapter").at("tensors").items())
    expect_golden(c, "trained." + key, trained.at(our_key(key)));
}

// The file that a run saves, read back as any LoRA file is and merged.
TEST_P(AdapterGolden, MergeFromTheirFile) {
  const AdaptedCase adapted(GetParam());
  const Case& c = adapted.golden();
  const TempDir dir;
  LoraModule module{.name = "m", .down = {}, .up = {}, .alpha = adapted.module().alpha, .rank = adapted.module().rank};
  for (auto& [key, tensor] : adapted.tensors()) {
    if (key == down_key)
      module.down = tensor;
    else if (key == up_key)
      module.up = tensor;
    else
      module.others.emplace_back(key, tensor);
  }
  CheckpointSpec spec;
  ComponentSpec denoiser;
  denoiser.name = "denoiser";
  denoiser.lora.kohya = {"lora_unet_"};
  spec.components.push_back(denoiser);
  write_lora(dir / "m.safetensors", {module}, spec, "kohya", DType::f32, {});
  const LoraFile file = read_lora(dir / "m.safetensors");
  ASSERT_EQ(file.entries.size(), 1u) << listed(file.problems);
  EXPECT_TRUE(file.problems.empty()) << listed(file.problems);
  if (c.json.at("adapter").contains("alpha_in_file") && file.entries[0].rank > 0) {
    const float alpha = c.json.at("adapter").at("alpha_in_file");
    EXPECT_FLOAT_EQ(static_cast<float>(file.entries[0].alpha.value_or(0)), alpha);
  }
  HostTensor weight = c.tensor("weight", c.json.at("weights").at("weight"));
  const Shape& shape = weight.desc.shape;
  const WeightRows all{.data = weight.as<float>().data(),
                       .count = shape[0],
                       .inputs = shape[1],
                       .taps = shape.numel() / (shape[0] * shape[1])};
  LoraDelta(file, file.entries[0]).add_to(all, 1);
  expect_golden(c, "merged", weight);
}

INSTANTIATE_TEST_SUITE_P(All, AdapterGolden, testing::ValuesIn(rows),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lh::test::adapter_golden_test
