// LoRA files of every tool, read and merged into the weights: each says the change that its matrices make in float64.
#include "io/lora_merge.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>

#include "io/checkpoint.h"
#include "io/quantise.h"
#include "support/lora_cases.h"

namespace lh::lora_merge_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LoraMergeTest : public ::testing::Test {
 protected:
  LoraMergeTest() {
    write_file(base, base_tensors());
    write_file(clip, {{"text_model.layers.0.fc1.weight", wave({8, 4}, 9)}});
  }

  Checkpoint open(bool with_clip = true) const {
    std::map<std::string, std::filesystem::path> paths{{"name_or_path", base}};
    if (with_clip) paths["clip_path"] = clip;
    return {spec, paths};
  }

  static Matrix weight(const Checkpoint& checkpoint, const std::string& name, DType dtype = DType::f32) {
    const Shape& shape = checkpoint.weights().at(name).shape;
    HostTensor tensor(Desc{dtype, shape});
    checkpoint.read(name, dtype, false, tensor.data);
    return matrix(converted(tensor, DType::f32));
  }

  // The weight as it is read with the file merged into it.
  Matrix merged(const std::string& name, double strength = 1) const {
    Checkpoint checkpoint = open();
    checkpoint.use(checkpoint.merge_of({{lora, strength}}));
    return weight(checkpoint, name);
  }

  std::string error(bool with_clip = true) const {
    Checkpoint checkpoint = open(with_clip);
    return error_of([&] { checkpoint.use(checkpoint.merge_of({{lora, 1}})); });
  }

  // Numbers are below 4 and sums have at most 40 terms.
  static void expect_equal(const Matrix& got, const Matrix& want) {
    ASSERT_EQ(got.rows, want.rows);
    ASSERT_EQ(got.columns, want.columns);
    for (size_t i = 0; i < want.values.size(); ++i) ASSERT_NEAR(got.values[i], want.values[i], 40 * 4 * 6e-8) << i;
  }

  TempDir dir;
  CheckpointSpec spec = CheckpointSpec::parse(lora_yaml, "tiny");
  std::filesystem::path base = dir / "base.safetensors", clip = dir / "clip.safetensors",
                        lora = dir / "lora.safetensors";
};

// ---- spellings

struct Names {
  const char *name, *weight;
  int64_t first_row, rows;
  bool swapped = false;
};

constexpr Names all_names[] = {
    {"lora_unet_blocks_0_qkv", "blocks.0.qkv", 0, 12},
    {"diffusion_model.blocks.0.qkv", "blocks.0.qkv", 0, 12},
    {"transformer.blocks.0.qkv", "blocks.0.qkv", 0, 12},
    {"blocks.0.qkv", "blocks.0.qkv", 0, 12},
    {"base_model.model.blocks.0.qkv", "blocks.0.qkv", 0, 12},
    {"lycoris_blocks_0_qkv", "blocks.0.qkv", 0, 12},
    {"transformer.t.0.attn.to_q", "blocks.0.qkv", 0, 4},
    {"transformer.t.0.attn.to_k", "blocks.0.qkv", 4, 4},
    {"t.0.attn.to_v", "blocks.0.qkv", 8, 4},
    {"base_model.model.t.0.attn.to_k", "blocks.0.qkv", 4, 4},
    {"lora_unet_t_0_attn_to_k", "blocks.0.qkv", 4, 4},
    {"lora_transformer_t_0_attn_to_v", "blocks.0.qkv", 8, 4},
    {"lycoris_t_0_attn_to_out_0", "blocks.0.proj", 0, 4},
    {"transformer.t.0.attn.processor.to_k", "blocks.0.qkv", 4, 4},
    {"t.0.attn.processor.to_out", "blocks.0.proj", 0, 4},
    {"transformer.s.3.attn.to_k", "single.3.linear1", 4, 4},
    {"transformer.s.3.proj_mlp", "single.3.linear1", 12, 16},
    {"lora_unet_single_3_linear1", "single.3.linear1", 0, 28},
    {"diffusion_model.single.3.linear1_qkv", "single.3.linear1", 0, 12},
    {"transformer.t.0.norm1.linear", "blocks.0.mod", 0, 8, true},
    {"lora_unet_t_0_norm1_linear", "blocks.0.mod", 0, 8, true},
    {"lora_unet_blocks_0_mod", "blocks.0.mod", 0, 8},
    {"diffusion_model.blocks.0.mod", "blocks.0.mod", 0, 8},
    {"lora_te1_text_model_layers_0_fc1", "clip:text_model.layers.0.fc1", 0, 8},
    {"lora_te_text_model_layers_0_fc1", "clip:text_model.layers.0.fc1", 0, 8},
    {"text_encoder.text_model.layers.0.fc1", "clip:text_model.layers.0.fc1", 0, 8},
    {"text_encoder.layers.0.fc1", "clip:text_model.layers.0.fc1", 0, 8},
    {"text_encoders.clip.transformer.text_model.layers.0.fc1", "clip:text_model.layers.0.fc1", 0, 8}};

// The rows of a change at their place in a weight of zeros.
Matrix placed(const Matrix& delta, const Names& names, const Matrix& weight) {
  Matrix out{weight.rows, weight.columns};
  for (int64_t r = 0; r < delta.rows; ++r) {
    const int64_t row = names.swapped ? (r + names.rows / 2) % names.rows : r;
    for (int64_t c = 0; c < delta.columns; ++c) out.at(names.first_row + row, c) = delta.at(r, c);
  }
  return out;
}

// Else the checkpoint that it is merged into is called damaged, which is fetched for hours.
TEST_F(LoraMergeTest, ANaNIsTheLoras) {
  HostTensor up = wave({12, 2}, 11);
  up.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  write_file(lora, {{"blocks.0.qkv.lora_down.weight", wave({2, 4}, 10)}, {"blocks.0.qkv.lora_up.weight", up}});
  EXPECT_THAT(error(), AllOf(HasSubstr("lora.safetensors: 1 of 24 values of `blocks.0.qkv.lora_up.weight` are a NaN"),
                             HasSubstr("the file is damaged")));
}

TEST_F(LoraMergeTest, EverySpellingOfNames) {
  const Checkpoint plain = open();
  for (const Names& names : all_names) {
    SCOPED_TRACE(names.name);
    const std::string name = names.name, canonical = std::string(names.weight) + ".weight";
    const HostTensor down = wave({2, 4}, 10), up = wave({names.rows, 2}, 11);
    write_file(
        lora, {{name + ".lora_down.weight", down}, {name + ".lora_up.weight", up}, {name + ".alpha", floats({}, {3})}});
    const Matrix before = weight(plain, canonical), delta = 3.0 / 2 * (matrix(up) * matrix(down));
    expect_equal(merged(canonical, -0.75), before + -0.75 * placed(delta, names, before));
  }
}

TEST_F(LoraMergeTest, EverySuffixOfAPair) {
  const std::vector<std::array<std::string, 2>> pairs{
      {".lora_down.weight", ".lora_up.weight"},
      {".lora_A.weight", ".lora_B.weight"},
      {".lora_A.default.weight", ".lora_B.default.weight"},
      {".lora_A", ".lora_B"},
      {".lora.down.weight", ".lora.up.weight"},
      {"_lora.down.weight", "_lora.up.weight"},
      {".lora_linear_layer.down.weight", ".lora_linear_layer.up.weight"}};
  const Checkpoint plain = open();
  const HostTensor down = wave({3, 4}, 1), up = wave({4, 3}, 2);
  const Matrix before = weight(plain, "blocks.0.proj.weight"), delta = matrix(up) * matrix(down);
  for (const auto& [a, b] : pairs)
    for (const bool with_alpha : {false, true}) {
      SCOPED_TRACE(a + (with_alpha ? " and alpha" : ""));
      const std::string name = "transformer.t.0.attn.to_out.0";
      std::vector<Given> tensors{{name + a, down}, {name + b, up}};
      if (with_alpha) tensors.push_back({name + ".alpha", floats({1}, {0.75})});
      write_file(lora, tensors);
      expect_equal(merged("blocks.0.proj.weight"), before + (with_alpha ? 0.25 : 1.0) * delta);
    }
}

TEST_F(LoraMergeTest, ReducedTypesAreWidened) {
  const HostTensor down = wave({2, 4}, 1), up = wave({4, 2}, 2);
  const Matrix before = weight(open(), "blocks.0.proj.weight");
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const HostTensor a = as_type(down, dtype), b = as_type(up, dtype);
    write_file(lora, {{"lora_unet_blocks_0_proj.lora_down.weight", a}, {"lora_unet_blocks_0_proj.lora_up.weight", b}});
    expect_equal(merged("blocks.0.proj.weight"),
                 before + matrix(converted(b, DType::f32)) * matrix(converted(a, DType::f32)));
  }
}

// torch.tensor(16) is what some scripts save as alpha.
TEST_F(LoraMergeTest, AlphaMayBeAWholeNumber) {
  const HostTensor down = wave({2, 4}, 1), up = wave({4, 2}, 2);
  const Matrix before = weight(open(), "blocks.0.proj.weight");
  for (const DType dtype : {DType::i32, DType::i64}) {
    HostTensor alpha(Desc{dtype, {}});
    alpha.data[0] = std::byte{6};
    write_file(lora, {{"lora_unet_blocks_0_proj.lora_down.weight", down},
                      {"lora_unet_blocks_0_proj.lora_up.weight", up},
                      {"lora_unet_blocks_0_proj.alpha", alpha}});
    expect_equal(merged("blocks.0.proj.weight"), before + 3.0 * (matrix(up) * matrix(down)));
  }
}

// ---- algebras

TEST_F(LoraMergeTest, EveryAlgebra) {
  const Checkpoint plain = open();
  for (const Algebra& algebra : algebras()) {
    SCOPED_TRACE(algebra.what);
    std::vector<Given> tensors;
    for (const Given& t : algebra.tensors) {
      std::string name = "diffusion_model." + std::string(algebra.weight) + t.name;
      tensors.push_back({std::move(name), t.tensor});
    }
    write_file(lora, tensors);
    const std::string canonical = std::string(algebra.weight) + ".weight";
    expect_equal(merged(canonical, 0.5), weight(plain, canonical) + 0.5 * algebra.delta);
  }
}

// A convolution's weight comes in the order of the device, with the change in it.
TEST_F(LoraMergeTest, ChannelsLast) {
  const HostTensor down = wave({2, 4, 3, 3}, 1), up = wave({6, 2, 1, 1}, 2);
  write_file(
      lora, {{"diffusion_model.res.1.conv.lora_down.weight", down}, {"diffusion_model.res.1.conv.lora_up.weight", up}});
  Checkpoint checkpoint = open();
  checkpoint.use(checkpoint.merge_of({{lora, 1}}));
  HostTensor plain(Desc{DType::bf16, {6, 4, 3, 3}}), last(Desc{DType::bf16, {6, 3, 3, 4}});
  checkpoint.read("res.1.conv.weight", DType::bf16, false, plain.data);
  checkpoint.read("res.1.conv.weight", DType::bf16, true, last.data);
  for (size_t o = 0; o < 6; ++o)
    for (size_t c = 0; c < 4; ++c)
      for (size_t t = 0; t < 9; ++t)
        ASSERT_EQ(plain.as<uint16_t>()[(o * 4 + c) * 9 + t], last.as<uint16_t>()[(o * 9 + t) * 4 + c]);
}

TEST_F(LoraMergeTest, BiasesAndNorms) {
  const HostTensor diff = wave({8}, 1), weight_norm = wave({6}, 2);
  write_file(lora, {{"diffusion_model.blocks.0.mod.diff_b", diff}, {"diffusion_model.res.1.norm.w_norm", weight_norm}});
  const Checkpoint plain = open();
  expect_equal(merged("blocks.0.mod.bias", 2), weight(plain, "blocks.0.mod.bias") + 2 * matrix(diff));
  expect_equal(merged("res.1.norm.weight", 2), weight(plain, "res.1.norm.weight") + 2 * matrix(weight_norm));
  write_file(lora, {{"transformer.t.0.norm1.linear.diff_b", diff}});  // diffusers has the halves the other way round
  Matrix want = weight(plain, "blocks.0.mod.bias");
  for (int64_t i = 0; i < 8; ++i) want.at(i, 0) += diff.as<float>()[static_cast<size_t>((i + 4) % 8)];
  expect_equal(merged("blocks.0.mod.bias"), want);
}

// M = W + dW; W' = W + strength (magnitude M / |M| - W), the norm taken of M.
TEST_F(LoraMergeTest, Dora) {
  struct Case {
    const char *what, *name, *weight;
    int64_t first_row, rows;
    Shape magnitude, down, up;
    bool output = false;
    const char* suffix = ".dora_scale";
  };
  const std::vector<Case> cases{
      {"of inputs", "lora_unet_blocks_0_proj", "blocks.0.proj", 0, 4, {1, 4}, {2, 4}, {4, 2}},
      {"of rows", "lora_unet_blocks_0_proj", "blocks.0.proj", 0, 4, {4, 1}, {2, 4}, {4, 2}, true},
      {"of rows as PEFT has them",
       "transformer.t.0.attn.to_k",
       "blocks.0.qkv",
       4,
       4,
       {4},
       {2, 4},
       {4, 2},
       true,
       ".lora_magnitude_vector"},
      {"of a part's inputs", "transformer.t.0.attn.to_k", "blocks.0.qkv", 4, 4, {1, 4}, {2, 4}, {4, 2}},
      {"of a convolution's inputs",
       "lora_unet_res_1_conv",
       "res.1.conv",
       0,
       6,
       {1, 4, 1, 1},
       {2, 4, 3, 3},
       {6, 2, 1, 1}},
      {"of a convolution's rows",
       "lora_unet_res_1_conv",
       "res.1.conv",
       0,
       6,
       {6, 1, 1, 1},
       {2, 4, 3, 3},
       {6, 2, 1, 1},
       true}};
  const Checkpoint plain = open();
  for (const Case& c : cases)
    for (const double strength : {1.0, 0.3}) {
      SCOPED_TRACE(c.what);
      const HostTensor down = wave(c.down, 1), up = wave(c.up, 2);
      HostTensor magnitude = wave(c.magnitude, 3);
      for (float& v : magnitude.as<float>()) v += 2;
      const std::string name = c.name, canonical = std::string(c.weight) + ".weight";
      write_file(lora, {{name + ".lora_down.weight", down},
                        {name + ".lora_up.weight", up},
                        {name + ".alpha", floats({}, {1})},
                        {name + c.suffix, magnitude}});
      const Matrix before = weight(plain, canonical);
      const int64_t taps = before.columns / 4;
      Matrix part{c.rows, before.columns};
      for (int64_t r = 0; r < c.rows; ++r)
        for (int64_t k = 0; k < before.columns; ++k) part.at(r, k) = before.at(c.first_row + r, k);
      const Matrix moved = part + 0.5 * (matrix(up) * matrix(down));
      Matrix want = before;
      for (int64_t r = 0; r < c.rows; ++r)
        for (int64_t k = 0; k < before.columns; ++k) {
          const double m = magnitude.as<float>()[static_cast<size_t>(c.output ? r : k / taps)];
          const double n = c.output ? norm(moved, r, -1, taps) : norm(moved, -1, k / taps, taps);
          want.at(c.first_row + r, k) += strength * (m / n * moved.at(r, k) - part.at(r, k));
        }
      expect_equal(merged(canonical, strength), want);
    }
}

// ---- several files, other components, fp8

TEST_F(LoraMergeTest, FilesAddUp) {
  const HostTensor down = wave({2, 4}, 1), up = wave({12, 2}, 2);
  const auto second = dir / "second.safetensors";
  write_file(lora, {{"lora_unet_blocks_0_qkv.lora_down.weight", down}, {"lora_unet_blocks_0_qkv.lora_up.weight", up}});
  write_file(second, {{"transformer.t.0.attn.to_v.lora_A.weight", down},
                      {"transformer.t.0.attn.to_v.lora_B.weight", wave({4, 2}, 3)}});
  Checkpoint checkpoint = open();
  const Matrix before = weight(checkpoint, "blocks.0.qkv.weight");
  const std::string untouched = checkpoint.fingerprint("denoiser"), clip_untouched = checkpoint.fingerprint("clip");
  checkpoint.use(checkpoint.merge_of({{lora, 0.5}, {second, -2}}));
  const Names value{"", "", 8, 4};
  expect_equal(weight(checkpoint, "blocks.0.qkv.weight"),
               before + 0.5 * (matrix(up) * matrix(down)) +
                   -2.0 * placed(matrix(wave({4, 2}, 3)) * matrix(down), value, before));
  EXPECT_NE(checkpoint.fingerprint("denoiser"), untouched);
  EXPECT_EQ(checkpoint.fingerprint("clip"), clip_untouched) << "nothing of the encoder is changed";
}

// What is encoded with a changed encoder has another key in the cache.
TEST_F(LoraMergeTest, EncodersHaveAnotherFingerprint) {
  const std::string name = "lora_te1_text_model_layers_0_fc1";
  write_file(lora, {{name + ".lora_down.weight", wave({1, 4}, 1)}, {name + ".lora_up.weight", wave({8, 1}, 2)}});
  std::vector<std::string> seen{open().fingerprint("clip")};
  for (const double strength : {1.0, 0.5}) {
    Checkpoint checkpoint = open();
    checkpoint.use(checkpoint.merge_of({{lora, strength}}));
    for (const std::string& other : seen) EXPECT_NE(checkpoint.fingerprint("clip"), other);
    seen.push_back(checkpoint.fingerprint("clip"));
    EXPECT_EQ(checkpoint.fingerprint("denoiser"), open().fingerprint("denoiser"));
  }
  EXPECT_EQ(error(false), "") << "an encoder that is not there is left out";
}

TEST_F(LoraMergeTest, Fp8WeightsAreWidened) {
  const HostTensor w = as_type(wave({12, 4}, 1), DType::f8_e4m3);
  write_file(base, {{"blocks.0.qkv.weight", w}, {"blocks.0.proj.weight", as_type(wave({4, 4}, 3), DType::f8_e4m3)}});
  const HostTensor down = wave({2, 4}, 1), up = wave({12, 2}, 2);
  write_file(lora, {{"lora_unet_blocks_0_qkv.lora_down.weight", down}, {"lora_unet_blocks_0_qkv.lora_up.weight", up}});
  Checkpoint checkpoint = open();
  EXPECT_TRUE(checkpoint.stored_fp8("blocks.0.qkv.weight"));
  checkpoint.use(checkpoint.merge_of({{lora, 1}}));
  EXPECT_FALSE(checkpoint.stored_fp8("blocks.0.qkv.weight")) << "the sum is no fp8 value";
  EXPECT_TRUE(checkpoint.stored_fp8("blocks.0.proj.weight")) << "nothing is added to it";
  const Matrix want = matrix(converted(w, DType::f32)) + matrix(up) * matrix(down);
  expect_equal(weight(checkpoint, "blocks.0.qkv.weight"), want);
  // Asked for, the sum is rounded, with one factor a row.
  std::vector<std::byte> codes(48);
  std::vector<float> factors(12);
  checkpoint.read_codes("blocks.0.qkv.weight", DType::f8_e4m3, codes, std::as_writable_bytes(std::span(factors)));
  for (int64_t r = 0; r < 12; ++r)
    for (int64_t c = 0; c < 4; ++c) {
      float code = 0;
      convert(DType::f8_e4m3, &codes[static_cast<size_t>(r * 4 + c)], DType::f32, &code, 1);
      const double value = want.at(r, c), factor = factors[static_cast<size_t>(r)];
      EXPECT_NEAR(code * factor, value, std::max(std::abs(value) / 16, factor / 1024) * 1.0001) << r << " " << c;
    }
  const HostTensor sum = checkpoint.read_f32("blocks.0.qkv.weight");
  for (const DType dtype : {DType::i8, DType::nf4}) {
    HostTensor got(Desc{dtype, {12, 4}}), scale(WeightForm::of(dtype, {12, 4}).scale());
    HostTensor expected = got, expected_scale = scale;
    checkpoint.read_codes("blocks.0.qkv.weight", dtype, got.data, scale.data);
    if (dtype == DType::nf4)
      quantise_nf4(sum.as<float>(), 12, expected.data, expected_scale.data);
    else
      quantise_rows(dtype, sum.as<float>(), expected.data, expected_scale.as<float>());
    EXPECT_EQ(got.data, expected.data) << dtype_name(dtype);
    EXPECT_EQ(scale.data, expected_scale.data) << dtype_name(dtype);
  }
}

// ---- what is wrong

TEST_F(LoraMergeTest, WhatIsWrongIsSaid) {
  const std::string x = "lora_unet_blocks_0_proj";
  const Given down{x + ".lora_down.weight", wave({2, 4}, 1)}, up{x + ".lora_up.weight", wave({4, 2}, 2)};
  struct Case {
    std::vector<Given> tensors;
    std::string key, why;
  };
  const std::vector<Case> cases{
      {{down}, down.name, "its up (or B) matrix is missing"},
      {{up}, up.name, "its down (or A) matrix is missing"},
      {{down, up, {x + ".lora_A.weight", wave({2, 4}, 3)}}, x + ".lora_A.weight", "the same part of one module as"},
      {{down, {x + ".lora_B.weight", wave({4, 2}, 3)}}, x, "spelled differently"},
      {{down, {up.name, wave({4, 3}, 1)}}, x, "do not fit, expected [rank, in, ...]"},
      {{{down.name, wave({2, 5}, 1)}, up}, x, "it changes [4, 5], the weight is [4, 4]"},
      {{down, {up.name, wave({5, 2}, 1)}}, x, "it changes [5, 4], the weight is [4, 4]"},
      {{down, up, {x + ".alpha", wave({2}, 1)}}, x + ".alpha", "alpha is one number"},
      {{down, up, {x + ".alpha", floats({}, {std::nanf("")})}}, x, "is nan"},
      {{{"lora_unet_blocks_0_qkv.lora_down.weight", wave({2, 4}, 1)},
        {"lora_unet_blocks_0_qkv.lora_up.weight", wave({12, 2}, 1)},
        {x + ".alpha", floats({}, {1})}},
       x + ".alpha",
       "no matrices beside this"},
      {{down, up, {x + ".dora_scale", wave({3, 1}, 1)}}, x, "DoRA magnitude [3, 1], expected [4, 1] or [1, 4]"},
      {{down, up, {x + ".diff", wave({4, 4}, 1)}}, x, "more than one kind"},
      {{down, up, {x + ".diff_b", wave({4}, 1)}}, x, "the layer has none"},
      {{{x + ".hada_w1_a", wave({4, 2}, 1)}}, x, "its `hada_w1_b` is missing"},
      {{{x + ".lokr_w1", wave({2, 2}, 1)}, {x + ".lokr_w2_a", wave({2, 2}, 1)}}, x, "its `lokr_w2`, or both"},
      {{down, up, {x + ".set_weight", wave({4, 4}, 1)}}, x + ".set_weight", "replaces the model's"},
      {{down, up, {"note", wave({1}, 1)}}, "note", "no tensor of a LoRA"},
      {{down,
        up,
        {"lora_unet_other.lora_down.weight", wave({2, 4}, 1)},
        {"lora_unet_other.lora_up.weight", wave({4, 2}, 1)}},
       "lora_unet_other",
       "no layer of this model has this name"},
      {{down,
        up,
        {"transformer.t.0.attn.to_out.0.lora_A.weight", wave({2, 4}, 1)},
        {"transformer.t.0.attn.to_out.0.lora_B.weight", wave({4, 2}, 1)}},
       "transformer.t.0.attn.to_out.0",
       "changes the same weight as " + x}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.why);
    write_file(lora, c.tensors);
    EXPECT_THAT(error(), AllOf(HasSubstr("lora.safetensors"), HasSubstr(c.key), HasSubstr(c.why),
                               HasSubstr("lora-host verify")));
  }
  write_file(lora, {{"a.weight", wave({2, 2}, 1)}});
  EXPECT_THAT(error(), AllOf(HasSubstr("not a LoRA"), HasSubstr("--model")));
}

}  // namespace
}  // namespace lh::lora_merge_test
