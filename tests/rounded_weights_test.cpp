// Base weights that are rounded when they are loaded: fp8, int8 and nf4 in a whole model. Rules of rounding:
// quantise_test.cpp; products: kernels_weights_test.cpp; weights that are fp8 in the file: fp8_test.cpp.
#include <gmock/gmock.h>

#include <cmath>

#include "encode/text_encoding.h"
#include "io/synthetic.h"
#include "ops/ops.h"
#include "passes/store_weights.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/model_files.h"
#include "support/reference/quantise.h"
#include "support/run_host.h"
#include "support/toy_step.h"

namespace lh::test::rounded_weights_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Rounding {
  const char* dtype;
  DType type;
};
constexpr Rounding roundings[] = {{"float8_e4m3", DType::f8_e4m3}, {"int8", DType::i8}, {"nf4", DType::nf4}};

void PrintTo(const Rounding& r, std::ostream* out) { *out << r.dtype; }

class Rounded : public ::testing::TestWithParam<Rounding> {};

INSTANTIATE_TEST_SUITE_P(To, Rounded, ::testing::ValuesIn(roundings),
                         [](const auto& info) { return std::string(info.param.dtype); });

// Bytes of a matrix [out, in] in device memory, where weights and factors begin at multiples of 256.
int64_t bytes_of(DType type, const Shape& shape) {
  const auto placed = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  if (type != DType::nf4) return placed(shape.numel()) + placed(4 * shape[0]);
  const reference::Nf4 law{shape[0], shape[1]};
  return placed(law.code_bytes()) + placed(law.scale_bytes());
}

std::vector<double> values_of(const Checkpoint& checkpoint, const std::string& name, DType type, const Shape& shape) {
  const WeightForm form = WeightForm::of(type, shape);
  HostTensor codes(Desc{type, shape}), scale(form.scale());
  checkpoint.read_codes(name, type, codes.data, scale.data);
  if (type == DType::nf4) return reference::Nf4{shape[0], shape[1]}.values(codes.data, scale.data);
  return reference::scaled_rows(shape[0], codes.data, scale.as<float>(),
                                type == DType::i8 ? reference::int8 : reference::e4m3);
}

// Weights of a training graph in the rounded type, and what their rounding costs in the mean square.
struct RoundedMatrices {
  std::map<std::string, Shape> shapes;
  std::map<std::string, double> errors;  // relative, in the mean square
};

RoundedMatrices rounded_matrices(const Model& model, DType type) {
  RoundedMatrices found;
  const Graph graph = toy_graph(model, {}).graph;
  for (const auto& [name, value] : graph.params) {
    const ValueInfo& info = graph.info(value);
    if (info.desc.dtype != type) continue;
    EXPECT_EQ(graph.desc(info.scale), WeightForm::of(type, info.desc.shape).scale()) << name;
    found.shapes[name] = info.desc.shape;
    const std::vector<double> got = values_of(model.checkpoint(), name, type, info.desc.shape);
    const HostTensor exact = model.checkpoint().read_f32(name);
    double error = 0, all = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += std::pow(got[i] - static_cast<double>(exact.as<float>()[i]), 2);
      all += std::pow(static_cast<double>(exact.as<float>()[i]), 2);
    }
    found.errors[name] = std::sqrt(error / all);
  }
  return found;
}

// Adapters at zero: the base model's output.
HostTensor denoise(const Model& model) {
  Device device(tested_device());
  const auto none = [](const std::string&) -> const AdapterSpec* { return nullptr; };
  const Graph graph =
      build_sample_graph(model, {{"batch", 1}, {"height", 16}, {"width", 16}, {"text_length", 32}}, none, DType::f32);
  const Weights weights(device, model.checkpoint(), graph);
  OwnedProgram program(device, graph, weights.bind(graph), "test");
  int64_t seed = 1;
  for (const auto& [name, value] : graph.inputs) program->set_input(name, ramp(graph.desc(value).shape, seed++));
  const float sigma = 0.6f;
  program->set_input("timestep", HostTensor::from_floats({1}, std::span(&sigma, 1)));
  program->run();
  return program->output("output");
}

TEST_P(Rounded, MatricesOfTheBlocksAreWithinRounding) {
  const OpenedModel plain(toy_denoiser(), "auto"), opened(toy_denoiser(), GetParam().dtype);
  const RoundedMatrices rounded = rounded_matrices(opened.model, GetParam().type);
  int64_t saved = 0;
  for (const auto& [name, shape] : rounded.shapes) {
    EXPECT_TRUE(name.starts_with("double_blocks.") || name.starts_with("single_blocks.")) << name;
    saved += 4 * shape.numel() - bytes_of(GetParam().type, shape);
  }
  EXPECT_EQ(rounded.shapes.size(), 22u);  // ten of the double block, three of each single block
  EXPECT_EQ(kept_weights(opened.model).rounded, 22);
  EXPECT_EQ(kept_weights(plain.model).bytes - kept_weights(opened.model).bytes, saved);
  // Errors of a layer's weights are independent, so that its output is off by their share of it; those of the layers
  // add up in squares.
  const double error = relative_error(denoise(opened.model), denoise(plain.model));
  double squares = 0;
  for (const auto& [name, share] : rounded.errors) {
    squares += share * share;
    RecordProperty(name, fmt::format("{:.4f}", share));  // docs/memory.md
  }
  RecordProperty("output", fmt::format("{:.4f}", error));
  EXPECT_GT(error, 1e-4);
  EXPECT_LT(error, std::sqrt(squares));
}

// A step with codes and factors is the step of a model that has their values, made in float64, as its weights: float32
// rounding of up to 1280 terms differs, sqrt(1280) 2^-24 a layer in the mean, over some ten layers.
TEST_P(Rounded, TrainsAsTheModelOfThoseValuesDoes) {
  const TempDir dir;
  Ran want, got;
  {
    const OpenedModel opened(toy_denoiser(), GetParam().dtype);
    std::vector<Given> tensors = tensors_of(toy_denoiser());
    const RoundedMatrices rounded = rounded_matrices(opened.model, GetParam().type);
    for (Given& t : tensors) {
      const auto found = rounded.shapes.find(t.name);
      if (found == rounded.shapes.end()) continue;
      const std::vector<double> values = values_of(opened.model.checkpoint(), t.name, GetParam().type, found->second);
      t.tensor = HostTensor::from_floats(found->second, std::vector<float>(values.begin(), values.end()));
    }
    write_file(dir / "values.safetensors", tensors);
    got = run_step(opened.model, {});
    const Ran recomputed = run_step(opened.model, {1});
    EXPECT_EQ(recomputed.loss, got.loss);
    for (const auto& [name, g] : got.gradients) EXPECT_EQ(recomputed.gradients.at(name).data, g.data) << name;
  }
  const OpenedModel wide(dir / "values.safetensors", "fp32");
  want = run_step(wide.model, {});
  ASSERT_TRUE(std::isfinite(want.loss));
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  EXPECT_NEAR(got.loss, want.loss, 2e-5 * want.loss);
  for (const auto& [name, g] : want.gradients) EXPECT_LT(relative_error(got.gradients.at(name), g), 2e-5) << name;
}

struct RoundedRun : ToyRun {
  explicit RoundedRun(const std::string& dtype) {
    set("dtype", "bf16").replace("model:\n", "model:\n  dtype: " + dtype + "\n").set("steps", "2");
  }
};

TEST_P(Rounded, ResumesWithTheSameBytes) {
  const RoundedRun whole(GetParam().dtype);
  expect_trained(whole.train());
  RoundedRun run(GetParam().dtype);
  expect_trained(run.set("steps", "1").train());
  expect_trained(run.set("steps", "2").train({"--resume"}));
  EXPECT_EQ(run.steps_done(), 2);
  EXPECT_TRUE(get(run.lora()) == get(whole.lora()));
  // Types of weights are part of what a run is.
  const HostResult other =
      run.replace(fmt::format("  dtype: {}\n", GetParam().dtype), "").set("steps", "3").train({"--resume"});
  EXPECT_EQ(other.code, 2) << other.output;
  EXPECT_THAT(other.output,
              HasSubstr(fmt::format("model.dtype: the saved run has {}, this one auto", GetParam().dtype)));
}

// An adapter that changes the weight itself is given its values.
TEST_P(Rounded, AdaptersThatReadTheWeightTrain) {
  RoundedRun run(GetParam().dtype);
  run.replace("network:\n", "network:\n  type: dora\n");
  expect_trained(run.train());
}

TEST_P(Rounded, DryRunSaysWhatTheWeightsTake) {
  const RoundedRun run(GetParam().dtype);
  const HostResult planned = expect_trained(run.train({"--dry-run"}));
  const OpenedModel plain(toy_denoiser(), "bf16"), opened(toy_denoiser(), GetParam().dtype);
  int64_t bytes = 0;  // as in bf16, but for the matrices that are rounded
  const RoundedMatrices rounded = rounded_matrices(opened.model, GetParam().type);
  for (const auto& [name, desc] : plain.model.checkpoint().weights()) {
    const auto found = rounded.shapes.find(name);
    bytes += found != rounded.shapes.end() ? bytes_of(GetParam().type, found->second)
                                           : (2 * desc.shape.numel() + 255) / 256 * 256;
  }
  EXPECT_THAT(planned.output, HasSubstr(fmt::format("weights {:.1f},", static_cast<double>(bytes) / (1 << 20))));
}

TEST_P(Rounded, DamagedRowsAreRefused) {
  const TempDir dir;
  std::vector<Given> tensors = tensors_of(toy_denoiser());
  for (Given& t : tensors)
    if (t.name == "single_blocks.1.linear2.weight") t.tensor.as<uint16_t>()[1280 * 5 + 3] = 0x7fc0;  // NaN in row 5
  write_file(dir / "nan.safetensors", tensors);
  const OpenedModel opened(dir / "nan.safetensors", GetParam().dtype);
  EXPECT_THAT(error_of([&] { denoise(opened.model); }),
              AllOf(HasSubstr("nan.safetensors"), HasSubstr("single_blocks.1.linear2.weight"), HasSubstr("row 5"),
                    HasSubstr(GetParam().dtype)));
}

// Made on the device for benches, they have the law of synthetic weights: mean 0 and its deviation, within four
// standard errors of a mean and of a deviation, and what the rounding of codes adds.
TEST_P(Rounded, SyntheticWeightsHaveTheirLaw) {
  Device device(tested_device());
  const OpenedModel opened(toy_denoiser(), GetParam().dtype);
  const Graph graph = toy_graph(opened.model, {}).graph;
  const Weights weights(device, opened.model.checkpoint(), graph, Weights::Source::random);
  const std::string name = "single_blocks.0.linear1.weight";
  const Value weight = graph.params.at(name);
  const ValueInfo& info = graph.info(weight);
  ASSERT_EQ(info.desc.dtype, GetParam().type);
  const HostTensor codes = [&] {
    HostTensor t(info.desc);
    device.check(lk_download(device.context(), t.data.data(), weights.bind(graph).at(weight), t.desc.bytes()), name);
    return t;
  }();
  HostTensor scale(graph.desc(info.scale));
  device.check(lk_download(device.context(), scale.data.data(), weights.bind(graph).at(info.scale), scale.desc.bytes()),
               name);
  const Shape& shape = info.desc.shape;
  const std::vector<double> values =
      GetParam().type == DType::nf4
          ? reference::Nf4{shape[0], shape[1]}.values(codes.data, scale.data)
          : reference::scaled_rows(shape[0], codes.data, scale.as<float>(),
                                   GetParam().type == DType::i8 ? reference::int8 : reference::e4m3);
  double sum = 0, squares = 0;
  for (const double v : values) sum += v, squares += v * v;
  const auto count = static_cast<double>(values.size());
  const double want = weight_law(name, shape).deviation, mean = sum / count, deviation = std::sqrt(squares / count);
  EXPECT_NEAR(mean, 0, want * (4 / std::sqrt(count) + (GetParam().type == DType::nf4 ? 0.06 : 0)));
  EXPECT_NEAR(deviation, want, want * (4 / std::sqrt(2 * count) + 0.005));
}

// ---- text encoders

struct Encoders {
  Model model;
  explicit Encoders(const std::string& dtype) : model(built_plugins(), config(dtype), "") {}
  static ModelConfig config(const std::string& dtype) {
    ModelConfig c = single(toy_denoiser());
    for (const auto& [key, file] : {std::pair{"clip_path", "clip_l.safetensors"}, {"t5_path", "t5xxl.safetensors"}})
      c.given[key] = {toy_denoiser().parent_path() / file};
    c.text_encoder_dtype = dtype;
    return c;
  }
};

// All matrices of linear layers are rounded and nothing else, tables of words not either; what the encoders give is off
// by their errors' share, which is independent from layer to layer. Entries of the cache are not taken for each other.
TEST_P(Rounded, TextEncodersAreWithinRounding) {
  Device device(tested_device());
  const TempDir cache;
  Encoders plain("auto"), rounded(GetParam().dtype);
  TextEncoding want(device, plain.model, DType::f32, cache.path()),
      got(device, rounded.model, DType::f32, cache.path());
  const std::string prompt = "a photo of a red circle";
  want.prepare({prompt});
  got.prepare({prompt});

  Graph wide = want.conditioner(DType::f32), narrow = got.conditioner(DType::f32);
  for (const auto& [graph, model] : {std::pair{&wide, &plain.model}, {&narrow, &rounded.model}})
    store_weights(*graph, [m = model](const std::string& weight) { return m->weight_form(weight); });
  double squares = 0;
  int64_t saved = 0;
  for (const auto& [name, value] : narrow.params) {
    const ValueInfo& info = narrow.info(value);
    if (name.ends_with(".scale")) continue;
    EXPECT_EQ(is_quantised(info.desc.dtype), static_cast<bool>(info.scale)) << name;
    if (!info.scale) {
      EXPECT_TRUE(info.desc.shape.rank() == 1 || name.find("embed") != name.npos || name.find("shared") != name.npos ||
                  name.find("relative_attention_bias") != name.npos)
          << name << " was left as it is";
      continue;
    }
    EXPECT_EQ(info.desc.dtype, GetParam().type) << name;
    const std::vector<double> values = values_of(rounded.model.checkpoint(), name, GetParam().type, info.desc.shape);
    const HostTensor exact = rounded.model.checkpoint().read_f32(name);
    double error = 0, all = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(values[i] - static_cast<double>(exact.as<float>()[i]), 2);
      all += std::pow(static_cast<double>(exact.as<float>()[i]), 2);
    }
    squares += error / all;
    saved += 4 * info.desc.shape.numel() - bytes_of(GetParam().type, info.desc.shape);
  }
  const auto bytes = [](const Graph& graph, const Model& model) {
    return weight_bytes(graph, weight_names(graph, model.checkpoint()));
  };
  EXPECT_GT(saved, 0);
  EXPECT_EQ(bytes(wide, plain.model) - bytes(narrow, rounded.model), saved);
  const TensorCache::Entry expected = want.at(prompt), given = got.at(prompt);
  for (const auto& [name, tensor] : *expected) {
    const double error = relative_error(given->at(name), tensor);
    EXPECT_GT(error, 1e-4) << name;
    EXPECT_LT(error, std::sqrt(squares)) << name;
  }
}

// ---- what is stored in fp8

TEST(RoundedFromFp8, EightBitsStayAndFourAreMade) {
  const TempDir dir;
  std::vector<Given> tensors = tensors_of(toy_denoiser());
  for (Given& t : tensors) t.tensor = as_type(t.tensor, DType::f8_e4m3);
  write_file(dir / "fp8.safetensors", tensors);
  const auto count = [&](const char* dtype, DType type) {
    const OpenedModel opened(dir / "fp8.safetensors", dtype);
    const Graph graph = toy_graph(opened.model, {}).graph;
    return std::ranges::count_if(graph.params, [&](const auto& p) { return graph.desc(p.second).dtype == type; });
  };
  EXPECT_EQ(count("int8", DType::f8_e4m3), 30);
  EXPECT_EQ(count("int8", DType::i8), 0);
  EXPECT_EQ(count("nf4", DType::f8_e4m3), 8);
  EXPECT_EQ(count("nf4", DType::nf4), 22);
  const OpenedModel opened(dir / "fp8.safetensors", "nf4");
  EXPECT_TRUE(all_finite(denoise(opened.model)));
}

// ---- model.dtype names a type of computation

TEST(WeightStorage, NarrowerThanTheComputation) {
  Ran want, got;
  int64_t wide = 0, narrow = 0;
  {
    const OpenedModel opened(toy_denoiser(), "fp32");
    want = run_step(opened.model, {});
    wide = kept_weights(opened.model).bytes;
  }
  const OpenedModel opened(toy_denoiser(), "bf16");
  got = run_step(opened.model, {});
  narrow = kept_weights(opened.model).bytes;
  EXPECT_LT(narrow, wide * 6 / 10);
  EXPECT_NEAR(got.loss, want.loss, 2e-5 * want.loss);  // the file is bf16: nothing is lost
  for (const auto& [name, g] : want.gradients) EXPECT_LT(relative_error(got.gradients.at(name), g), 2e-5) << name;
}

}  // namespace
}  // namespace lh::test::rounded_weights_test
