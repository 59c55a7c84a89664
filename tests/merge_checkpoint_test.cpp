// LoRAs merged into checkpoint files: the weights are those that sampling with the LoRA reads, everything else is as it
// was.
#include "lora/merge_checkpoint.h"

#include <gmock/gmock.h>

#include <cmath>

#include "io/quantise.h"
#include "support/lora_cases.h"
#include "support/model_files.h"

namespace lh::merge_checkpoint_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class MergeCheckpoint : public ::testing::Test {
 protected:
  MergeCheckpoint() {
    write_file(lora, {{"lora_unet_blocks_0_qkv.lora_down.weight", wave({2, 4}, 1)},
                      {"lora_unet_blocks_0_qkv.lora_up.weight", wave({12, 2}, 2)},
                      {"lora_unet_blocks_0_qkv.alpha", floats({}, {3})},
                      {"transformer.t.0.norm1.linear.lora_A.weight", wave({2, 4}, 3)},
                      {"transformer.t.0.norm1.linear.lora_B.weight", wave({8, 2}, 4)},
                      {"diffusion_model.blocks.0.mod.diff_b", wave({8}, 5)},
                      {"diffusion_model.res.1.skip.lora_down.weight", wave({1, 4, 1, 1}, 6)},
                      {"diffusion_model.res.1.skip.lora_up.weight", wave({6, 1, 1, 1}, 7)}});
    inputs = {{lora, 0.75}};
  }
  ~MergeCheckpoint() override { set_fault_hook({}); }

  using Paths = std::map<std::string, fs::path>;
  std::vector<MergedFile> merge(const Paths& paths, std::optional<DType> dtype = {}) const {
    return merge_checkpoint(spec, paths, inputs, Unmatched::refuse, dtype, out);
  }

  // Every weight of the files at `got` is, in `dtype`, what the original gives with the LoRAs merged as it is read.
  void expect_merged(const Paths& before, const Paths& got, DType dtype) const {
    Checkpoint want(spec, before);
    want.use(want.merge_of(inputs));
    const Checkpoint made(spec, got);
    ASSERT_EQ(made.weights().size(), want.weights().size());
    for (const auto& [name, desc] : want.weights()) {
      ASSERT_EQ(made.weights().at(name).shape, desc.shape) << name;
      HostTensor a(Desc{dtype, desc.shape}), b(Desc{dtype, desc.shape});
      want.read(name, dtype, false, a.data), made.read(name, dtype, false, b.data);
      EXPECT_EQ(a.data, b.data) << name;
    }
  }

  TempDir dir;
  CheckpointSpec spec = CheckpointSpec::parse(lora_yaml, "tiny");
  fs::path base = dir / "base.safetensors", clip = dir / "clip.safetensors", lora = dir / "lora.safetensors",
           out = dir / "out.safetensors";
  std::vector<LoraInput> inputs;
};

TEST_F(MergeCheckpoint, OneFileKeepsItsForm) {
  std::vector<Given> tensors = base_tensors();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (Given& t : tensors) t.tensor = converted(t.tensor, dtype);
    std::ranges::reverse(tensors);  // not in the order of names
    write_file(base, tensors, {{"format", "pt"}, {"modelspec.title", "x"}, {"modelspec.hash_sha256", "0x1"}});
    const std::vector<MergedFile> done = merge({{"name_or_path", base}});
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].changed, 4);
    EXPECT_EQ(done[0].tensors, static_cast<int64_t>(tensors.size()));
    expect_merged({{"name_or_path", base}}, {{"name_or_path", out}}, dtype);
    const Safetensors before(base), after(out);
    EXPECT_EQ(after.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"modelspec.title", "x"}}));
    ASSERT_EQ(after.tensors().size(), before.tensors().size());
    for (size_t i = 0; i < before.tensors().size(); ++i) {
      EXPECT_EQ(after.tensors()[i].name, before.tensors()[i].name);
      EXPECT_EQ(after.tensors()[i].desc, before.tensors()[i].desc);
    }
    fs::remove(out);
  }
}

// In float32 against float64, where the change is added once.
TEST_F(MergeCheckpoint, IsTheSum) {
  write_file(base, base_tensors());
  merge({{"name_or_path", base}});
  const Matrix before = matrix(Safetensors(base).read("blocks.0.qkv.weight")),
               after = matrix(Safetensors(out).read("blocks.0.qkv.weight"));
  const Matrix want = before + 0.75 * 1.5 * (matrix(wave({12, 2}, 2)) * matrix(wave({2, 4}, 1)));
  for (size_t i = 0; i < want.values.size(); ++i) ASSERT_NEAR(after.values[i], want.values[i], 1e-6);
}

// q, k and v apart, halves the other way round, a convolution as a matrix; two shards, and files that are no weights.
TEST_F(MergeCheckpoint, AFolderKeepsItsForm) {
  const fs::path folder = dir / "model";
  std::vector<Given> tensors;
  for (const Given& t : base_tensors())
    for (const Given& own : in_diffusers(*spec.component("denoiser"), t, base_tensors())) tensors.push_back(own);
  for (Given& t : tensors) t.tensor = converted(t.tensor, DType::bf16);
  write_shards(folder / "transformer", "diffusion_pytorch_model", "", tensors);
  put(folder / "model_index.json", "{}");
  put(folder / "transformer" / "config.json", "{\"a\": 1}");
  put(folder / "scheduler" / "scheduler_config.json", "{}");
  put(folder / "safety_checker" / "model.safetensors", "as it is");
  CheckpointSpec in_folder = spec;
  in_folder.components[0].folder = "transformer";
  const std::vector<MergedFile> done =
      merge_checkpoint(in_folder, {{"name_or_path", folder}}, inputs, Unmatched::refuse, {}, dir / "merged");
  ASSERT_FALSE(done.empty());
  for (const char* const file : {"model_index.json", "transformer/config.json", "scheduler/scheduler_config.json",
                                 "safety_checker/model.safetensors"})
    EXPECT_EQ(get(dir / "merged" / file), get(folder / file)) << file;
  spec = in_folder;
  expect_merged({{"name_or_path", folder}}, {{"name_or_path", dir / "merged"}}, DType::bf16);
  EXPECT_THAT(error_of([&] {
                merge_checkpoint(in_folder, {{"name_or_path", folder}}, inputs, Unmatched::refuse, {}, dir / "merged");
              }),
              HasSubstr("is there already"));
  for (const auto& entry : fs::directory_iterator(dir.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".lora-host")) << entry.path();
}

TEST_F(MergeCheckpoint, TextEncodersHaveFilesOfTheirOwn) {
  write_file(base, base_tensors());
  write_file(clip, {{"text_model.layers.0.fc1.weight", wave({8, 4}, 9)}});
  const fs::path text = dir / "text.safetensors";
  write_file(text, {{"lora_te1_text_model_layers_0_fc1.lora_down.weight", wave({2, 4}, 1)},
                    {"lora_te1_text_model_layers_0_fc1.lora_up.weight", wave({8, 2}, 2)}});
  const Paths paths{{"name_or_path", base}, {"clip_path", clip}};
  inputs = {{text, 1}};
  EXPECT_EQ(merge(paths).at(0).from, clip) << "nothing else is changed";
  expect_merged(paths, {{"name_or_path", base}, {"clip_path", out}}, DType::f32);
  inputs.push_back({lora, 1});
  out = dir / "both";
  EXPECT_EQ(merge(paths).size(), 2u);
  expect_merged(paths, {{"name_or_path", out / "base.safetensors"}, {"clip_path", out / "clip.safetensors"}},
                DType::f32);
  EXPECT_THAT(error_of([&] {
                merge({{"name_or_path", base}});
              }),
              AllOf(HasSubstr("lora_te1_text_model_layers_0_fc1"), HasSubstr("clip, which is not there")));
}

// One scale for a weight, one for each row; a layer that nothing changes stays as it is.
TEST_F(MergeCheckpoint, ScaledFp8IsRoundedAnew) {
  std::vector<Given> tensors;
  for (Given t : base_tensors()) {
    if (t.tensor.desc.shape.rank() == 2) {
      const std::string layer = t.name.substr(0, t.name.size() - 7);
      const int64_t factors = layer == "blocks.0.qkv" ? t.tensor.desc.shape[0] : 1;
      std::vector<std::byte> codes(t.tensor.as<float>().size());
      std::vector<float> scale(static_cast<size_t>(factors));
      quantise_rows(DType::f8_e4m3, t.tensor.as<float>(), codes, scale);
      HostTensor fp8(Desc{DType::f8_e4m3, t.tensor.desc.shape});
      std::ranges::copy(codes, fp8.data.begin());
      t.tensor = fp8;
      tensors.push_back(
          {layer + ".scale_weight", HostTensor::from_floats(factors == 1 ? Shape{} : Shape{factors, 1}, scale)});
    }
    tensors.push_back(t);
  }
  tensors.push_back({"scaled_fp8", as_type(floats({2}, {0, 0}), DType::f8_e4m3)});
  write_file(base, tensors,
             {{"_quantization_metadata", R"({"layers": {"blocks.0.qkv": {"format": "float8_e4m3fn"},)"
                                         R"("blocks.0.proj": {"format": "float8_e4m3fn"}}})"}});
  merge({{"name_or_path", base}});
  const Safetensors before(base), after(out);
  for (const StoredTensor& t : before.tensors()) EXPECT_EQ(after.find(t.name)->desc, t.desc) << t.name;
  for (const char* const same : {"blocks.0.proj.weight", "blocks.0.proj.scale_weight", "single.3.linear1.weight"})
    EXPECT_EQ(after.read(same).data, before.read(same).data) << same;
  Checkpoint want(spec, {{"name_or_path", base}});
  want.use(want.merge_of(inputs));
  const Checkpoint made(spec, {{"name_or_path", out}});
  for (const std::string name : {"blocks.0.qkv.weight", "blocks.0.mod.weight"}) {
    const HostTensor a = want.read_f32(name), b = made.read_f32(name);
    const auto scales = converted(after.read(name.substr(0, name.size() - 7) + ".scale_weight"), DType::f32);
    const size_t width = a.as<float>().size() / scales.as<float>().size();
    for (size_t i = 0; i < a.as<float>().size(); ++i) {
      const double value = a.as<float>()[i], factor = scales.as<float>()[i / width];
      ASSERT_NEAR(b.as<float>()[i], value, std::max(std::abs(value) / 16, factor / 1024) * 1.0001) << name << " " << i;
    }
  }

  out = dir / "wide.safetensors";
  merge({{"name_or_path", base}}, DType::bf16);
  const Safetensors wide(out);
  EXPECT_EQ(wide.find("blocks.0.qkv.weight")->desc.dtype, DType::bf16);
  EXPECT_EQ(wide.find("blocks.0.qkv.scale_weight"), nullptr);
  EXPECT_EQ(wide.find("blocks.0.proj.weight")->desc.dtype, DType::f8_e4m3);
  EXPECT_NE(wide.find("blocks.0.proj.scale_weight"), nullptr);
  EXPECT_EQ(wide.metadata().at("_quantization_metadata"), R"({"layers":{"blocks.0.proj":{"format":"float8_e4m3fn"}}})");
  expect_merged({{"name_or_path", base}}, {{"name_or_path", out}}, DType::bf16);
}

TEST_F(MergeCheckpoint, Fp8ThatWouldLoseTheChangeIsRefused) {
  std::vector<Given> tensors = base_tensors();
  for (Given& t : tensors) t.tensor = converted(t.tensor, DType::f8_e4m3);
  write_file(base, tensors);
  EXPECT_THAT(error_of([&] {
                merge({{"name_or_path", base}});
              }),
              AllOf(HasSubstr("blocks.0."), HasSubstr("no scale"), HasSubstr("--save-dtype bf16")));
  EXPECT_FALSE(fs::exists(out));
  merge({{"name_or_path", base}}, DType::f32);
  expect_merged({{"name_or_path", base}}, {{"name_or_path", out}}, DType::f32);
}

TEST_F(MergeCheckpoint, WhatFailsLeavesNothing) {
  std::vector<Given> tensors = base_tensors();
  write_file(base, tensors);
  const auto only_inputs = [&] {
    for (const auto& entry : fs::directory_iterator(dir.path()))
      EXPECT_TRUE(entry.path() == base || entry.path() == lora) << entry.path();
  };
  for (const std::string call : {"fallocate", "write", "fsync", "rename"}) {
    set_fault_hook([&](const char* now) { return call == now ? ENOSPC : 0; });
    EXPECT_NE(error_of([&] { merge({{"name_or_path", base}}); }), "") << call;
    set_fault_hook({});
    only_inputs();
  }
  tensors[0].tensor.as<float>()[3] = NAN;
  write_file(base, tensors);
  EXPECT_THAT(error_of([&] {
                merge({{"name_or_path", base}});
              }),
              AllOf(HasSubstr("blocks.0.qkv.weight"), HasSubstr("NaN")));
  only_inputs();
  tensors = base_tensors();
  for (Given& t : tensors) t.tensor = converted(t.tensor, DType::f16);
  write_file(base, tensors);
  inputs = {{lora, 1e7}};
  EXPECT_THAT(error_of([&] {
                merge({{"name_or_path", base}});
              }),
              AllOf(HasSubstr("do not fit into float16"), HasSubstr("--save-dtype bf16")));
  only_inputs();
  write_file(lora, {{"lora_unet_other.lora_down.weight", wave({2, 4}, 1)},
                    {"lora_unet_other.lora_up.weight", wave({8, 2}, 2)}});
  EXPECT_THAT(error_of([&] { merge({{"name_or_path", base}}); }), HasSubstr("lora_unet_other"));
  const std::string bytes = get(base);
  put(base, bytes.substr(0, bytes.size() - 7));
  EXPECT_THAT(error_of([&] { merge({{"name_or_path", base}}); }), HasSubstr("cut short"));
}

}  // namespace
}  // namespace lh::merge_checkpoint_test
