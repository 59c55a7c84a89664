// LoRA files in every format say the same change of the weights.
#include "io/lora_file.h"

#include <algorithm>
#include <cmath>

#include "core/hash.h"
#include "io/inspect.h"
#include "io/lora_read.h"
#include "support/io_files.h"

namespace lh::lora_file_test {
namespace {

using namespace test;

constexpr const char* yaml = R"(
components:
  denoiser:
    lora: {kohya: lora_unet_, diffusers: transformer., native: diffusion_model.}
    marker: blocks.0.qkv.weight
    diffusers:
      - {native: "blocks.{i}.qkv", from: ["t.{i}.to_q", "t.{i}.to_k", "t.{i}.to_v"]}
      - {native: "blocks.{i}.proj", from: "t.{i}.to_out.0"}
      - {native: "blocks.{i}.mod", from: "t.{i}.norm1.linear", how: swap_halves, when_rows: 2}
      - {native: "blocks.{i}.mod", from: "t.{i}.norm1.linear"}
      - {native: "single.{i}.linear1", from: ["s.{i}.to_q", "s.{i}.to_k", "s.{i}.to_v", "s.{i}.proj_mlp"]}
      - {native: "conv.{*}", from: "resnets.{*}", exact: true}
  clip:
    lora: {kohya: lora_te1_, diffusers: text_encoder., native: text_encoders.clip.transformer.}
    marker: text_model.fc1.weight
    diffusers:
      - {native: "text_model.{*}", from: "text_model.{*}", exact: true}
  t5:
    lora: {kohya: lora_te3_}
    marker: encoder.o.weight
)";

HostTensor wave(Shape shape, float phase) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(phase + static_cast<float>(i));
  return floats(std::move(shape), values);
}

LoraModule linear(const std::string& name, int64_t in, int64_t out, int64_t rank, double alpha) {
  return {name, wave({rank, in}, static_cast<float>(in)), wave({out, rank}, static_cast<float>(out)), alpha};
}

std::vector<LoraModule> modules() {
  return {
      linear("blocks.0.qkv", 4, 12, 2, 1),     linear("blocks.0.proj", 4, 4, 3, 3),
      linear("blocks.0.mod", 4, 24, 2, 2),     linear("blocks.1.mod", 4, 8, 2, 2),
      linear("single.5.linear1", 4, 28, 2, 4), {"conv.a.in_layers.2", wave({2, 3, 3, 3}, 1), wave({6, 2, 1, 1}, 2), 1}};
}

// alpha / rank * up * down, row by row.
std::vector<double> delta(const LoraModule& m) {
  const auto rank = static_cast<size_t>(m.down.desc.shape[0]), out = static_cast<size_t>(m.up.desc.shape[0]);
  const auto down = m.down.as<float>(), up = m.up.as<float>();
  const size_t in = down.size() / rank;
  std::vector<double> values(out * in);
  for (size_t o = 0; o < out; ++o)
    for (size_t r = 0; r < rank; ++r)
      for (size_t i = 0; i < in; ++i)
        values[o * in + i] += m.alpha / static_cast<double>(rank) * up[o * rank + r] * down[r * in + i];
  return values;
}

// A module of a file with its matrices read.
LoraModule named(const LoraFile& file, const std::string& name) {
  for (const LoraEntry& entry : file.entries)
    if (entry.name == name)
      return {name, read_f32(file, entry.tensor(LoraPart::down)), read_f32(file, entry.tensor(LoraPart::up)),
              entry.alpha.value_or(static_cast<double>(entry.rank))};
  throw std::runtime_error("no module " + name);
}

class LoraFileTest : public ::testing::Test {
 protected:
  LoraFile write(const std::string& format, DType dtype = DType::f32, const LoraMetadata& metadata = {}) const {
    write_lora(path, modules(), spec, format, dtype, metadata);
    return read_lora(path);
  }
  TempDir dir;
  std::filesystem::path path = dir / "lora.safetensors";
  CheckpointSpec spec = CheckpointSpec::parse(yaml, "tiny");
};

TEST_F(LoraFileTest, KohyaKeepsModulesAsTrained) {
  const LoraFile file = write("kohya");
  EXPECT_TRUE(file.problems.empty());
  ASSERT_EQ(file.entries.size(), modules().size());
  for (const LoraModule& m : modules()) {
    std::string name = "lora_unet_" + m.name;
    std::ranges::replace(name, '.', '_');
    EXPECT_EQ(named(file, name).down.data, m.down.data) << name;
    EXPECT_EQ(named(file, name).up.data, m.up.data) << name;
    EXPECT_EQ(named(file, name).up.desc, m.up.desc) << name;
    EXPECT_EQ(named(file, name).alpha, m.alpha) << name;
  }
  const Safetensors raw(path);
  EXPECT_EQ(raw.find("lora_unet_blocks_0_qkv.alpha")->desc, (Desc{DType::f32, Shape{}}));
  EXPECT_EQ(raw.tensors()[0].name, "lora_unet_blocks_0_qkv.lora_down.weight");
  EXPECT_EQ(raw.tensors()[1].name, "lora_unet_blocks_0_qkv.lora_up.weight");
  EXPECT_EQ(raw.tensors()[2].name, "lora_unet_blocks_0_qkv.alpha");
}

TEST_F(LoraFileTest, SmallTypesKeepAlphaAndAlignment) {
  write("kohya", DType::bf16);
  const Safetensors raw(path);
  for (const StoredTensor& t : raw.tensors()) {
    EXPECT_EQ(t.desc.dtype, t.name.ends_with(".alpha") ? DType::f32 : DType::bf16) << t.name;
    EXPECT_EQ((t.offset - raw.data_start()) % dtype_size(t.desc.dtype), 0) << t.name;
  }
  EXPECT_EQ(raw.read("lora_unet_blocks_0_proj.lora_up.weight").data, as_type(modules()[1].up, DType::bf16).data);
}

TEST_F(LoraFileTest, DiffusersPartsAddUpToTheNativeChange) {
  const LoraFile file = write("diffusers");
  EXPECT_TRUE(file.problems.empty());
  ASSERT_EQ(file.entries.size(), 3u + 1 + 1 + 1 + 4 + 1);
  const std::vector<std::vector<std::string>> parts{{"t.0.to_q", "t.0.to_k", "t.0.to_v"},
                                                    {"t.0.to_out.0"},
                                                    {"t.0.norm1.linear"},
                                                    {"t.1.norm1.linear"},
                                                    {"s.5.to_q", "s.5.to_k", "s.5.to_v", "s.5.proj_mlp"},
                                                    {"resnets.a.in_layers.2"}};
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<double> got;
    for (const std::string& part : parts[i]) {
      const LoraModule m = named(file, "transformer." + part);
      EXPECT_EQ(m.down.desc.shape[0], 3) << part;  // one rank for all
      const auto d = delta(m);
      got.insert(got.end(), d.begin(), d.end());
    }
    std::vector<double> want = delta(modules()[i]);
    if (modules()[i].name == "blocks.1.mod")
      std::rotate(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(want.size() / 2), want.end());
    ASSERT_EQ(got.size(), want.size()) << modules()[i].name;
    for (size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(got[k], want[k], 1e-6) << modules()[i].name << " " << k;
  }
  EXPECT_EQ(named(file, "transformer.s.5.proj_mlp").up.desc.shape[0], 16);
  EXPECT_EQ(named(file, "transformer.t.0.to_q").down.data, named(file, "transformer.t.0.to_v").down.data);
  const Safetensors raw(path);
  for (const StoredTensor& t : raw.tensors()) EXPECT_FALSE(t.name.ends_with(".alpha"));
}

TEST_F(LoraFileTest, MetadataIsCompleteAndRepeatable) {
  const LoraMetadata given{
      {{"ss_output_name", "cat"}, {"modelspec.architecture", "x/lora"}, {"ss_base_model_version", "tiny"}}};
  const LoraFile file = write("kohya", DType::f16, given);
  const std::string bytes = get(path);
  write("kohya", DType::f16, given);
  EXPECT_EQ(get(path), bytes);
  const auto& m = file.file->metadata();
  EXPECT_EQ(m.at("ss_network_module"), "networks.lora");
  EXPECT_EQ(m.at("ss_network_dim"), "Dynamic");
  EXPECT_EQ(m.at("ss_network_args"), R"({"conv_dim": "2", "conv_alpha": "1"})");
  EXPECT_EQ(m.at("ss_v2"), "False");
  EXPECT_EQ(m.at("ss_output_name"), "cat");
  EXPECT_EQ(m.at("modelspec.sai_model_spec"), "1.0.1");
  const auto start = static_cast<size_t>(Safetensors(path).data_start());
  EXPECT_EQ(m.at("sshs_model_hash"), sha256_hex(std::string_view(bytes).substr(start)));
  EXPECT_EQ(m.at("sshs_legacy_hash"), "e3b0c442");  // of nothing: the file is shorter than a MiB
}

TEST_F(LoraFileTest, LegacyHashIsThatOfTheFileWithTrainingEntriesOnly) {
  const std::vector<LoraModule> big{linear("blocks.0.proj", 512, 512, 400, 400)};
  write_lora(path, big, spec, "kohya", DType::f32, {{{"modelspec.title", std::string(3001, 't')}}});
  const Safetensors written(path);
  const std::string hash = written.metadata().at("sshs_legacy_hash");
  std::map<std::string, std::string> training;
  for (const auto& [key, value] : written.metadata())
    if (key.starts_with("ss_")) training[key] = value;
  std::vector<Given> tensors;
  for (const StoredTensor& t : written.tensors()) tensors.push_back({t.name, written.read(t.name)});
  write_file(dir / "plain", tensors, training);
  EXPECT_EQ(hash, sha256_hex(std::string_view(get(dir / "plain")).substr(0x100000, 0x10000)).substr(0, 8));
  EXPECT_EQ(written.metadata().at("ss_network_dim"), "400");
  EXPECT_EQ(written.metadata().at("ss_network_alpha"), "400");
}

TEST_F(LoraFileTest, RefusesWhatItCannotSpell) {
  const auto error = [&](LoraModule m, const std::string& format) {
    return error_of([&] { write_lora(path, {std::move(m)}, spec, format, DType::f32, {}); });
  };
  EXPECT_NE(error(linear("unknown.module", 4, 4, 2, 1), "diffusers").find("has no name in the diffusers format"),
            std::string::npos);
  EXPECT_NE(error(linear("blocks.0.qkv", 4, 13, 2, 1), "diffusers").find("13 rows do not split into 3"),
            std::string::npos);
  EXPECT_NE(error(linear("single.0.linear1", 4, 12, 2, 1), "diffusers").find("12 rows do not split into 4"),
            std::string::npos);
  EXPECT_NE(error(linear("blocks.0.proj", 4, 4, 2, 1), "zip").find("expected kohya, comfyui or diffusers"),
            std::string::npos);
  EXPECT_NE(error(linear("t5:encoder.o", 4, 4, 2, 1), "diffusers").find("Use save.format kohya"), std::string::npos);
  EXPECT_NE(error(linear("vae:x", 4, 4, 2, 1), "kohya").find("no component `vae`"), std::string::npos);
  LoraModule odd = linear("blocks.0.proj", 4, 4, 2, 1);
  odd.up = wave({4, 3}, 0);
  EXPECT_NE(error(odd, "kohya").find("LoRA module \"blocks.0.proj\""), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Every format names the modules of every component; the tensors are the same but for diffusers.
TEST_F(LoraFileTest, NamesOfEveryFormat) {
  std::vector<LoraModule> all = modules();
  all.push_back(linear("clip:text_model.fc1", 4, 8, 5, 1));
  struct Case {
    const char *format, *native, *conv, *encoder, *suffix;
  };
  const std::vector<Case> cases{
      {"kohya", "lora_unet_blocks_0_qkv", "lora_unet_conv_a_in_layers_2", "lora_te1_text_model_fc1", ".lora_up.weight"},
      {"comfyui", "diffusion_model.blocks.0.qkv", "diffusion_model.conv.a.in_layers.2",
       "text_encoders.clip.transformer.text_model.fc1", ".lora_up.weight"},
      {"diffusers", "transformer.t.0.to_q", "transformer.resnets.a.in_layers.2", "text_encoder.text_model.fc1",
       ".lora_B.weight"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.format);
    write_lora(path, all, spec, c.format, DType::f32, {});
    const Safetensors file(path);
    const bool split = std::string(c.format) == "diffusers";
    for (const char* name : {c.native, c.conv, c.encoder}) {
      EXPECT_NE(file.find(std::string(name) + c.suffix), nullptr) << name;
      EXPECT_EQ(file.find(std::string(name) + ".alpha") != nullptr, !split) << name;
    }
    // One rank for each component, not for the file.
    const Shape up = file.find(std::string(c.conv) + c.suffix)->desc.shape,
                encoder = file.find(std::string(c.encoder) + c.suffix)->desc.shape;
    EXPECT_EQ(up, (Shape{6, split ? 3 : 2, 1, 1}));
    EXPECT_EQ(encoder, (Shape{8, 5}));
  }
}

TEST_F(LoraFileTest, InspectShowsModulesAndEscapesMetadata) {
  const std::vector<LoraModule> list{linear("blocks.0.proj", 4, 4, 2, 1)};
  write_lora(path, list, spec, "kohya", DType::f32, {{{"ss_note", "a\x1b[31m\nb\xc2\x9b"}}});
  const std::string text = inspect(path, {{"tiny", spec}});
  double sum = 0;
  for (const double v : delta(list[0])) sum += v * v;
  EXPECT_NE(text.find("3 tensors (3 F32), 17 parameters, 68 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("LoRA: 1 modules; LoRA, rank 2, alpha 1, F32"), std::string::npos) << text;
  EXPECT_NE(text.find(fmt::format("{:.4g}", std::sqrt(sum))), std::string::npos) << text;
  EXPECT_NE(text.find("names of tiny: 1 of 1 modules; denoiser as lora_unet_{native_} 1"), std::string::npos) << text;
  EXPECT_NE(text.find("ss_note: a\\x1b[31m\\nb\\u009b"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

// 96 KB of factors that multiply out to 256 GiB.
TEST(LoraFile, ChangesHaveALimit) {
  const TempDir dir;
  write_file(
      dir / "f.safetensors",
      {{"m.lokr_w1", counting({8192, 1})}, {"m.lokr_w2_a", counting({8192, 1})}, {"m.lokr_w2_b", counting({1, 8192})}});
  const LoraFile file = read_lora(dir / "f.safetensors");
  EXPECT_TRUE(file.entries.empty());
  ASSERT_EQ(file.problems.size(), 3u);
  EXPECT_EQ(file.problems[0].why, "a change of 67108864 x 8192 elements, more than any layer has");
}

// What cannot be written in the type that was asked for is said, and the file that was there stays.
TEST(LoraFile, IsFinite) {
  const TempDir dir;
  const std::filesystem::path path = dir / "my.safetensors";
  const CheckpointSpec spec = CheckpointSpec::parse(yaml, "test");
  std::vector<LoraModule> all = modules();
  write_lora(path, all, spec, "kohya", DType::f16, {});
  const std::string before = get(path);
  all[1].up.as<float>()[3] = 70000;  // above 65504
  const std::string overflow = error_of([&] { write_lora(path, all, spec, "kohya", DType::f16, {}); });
  EXPECT_NE(overflow.find("1 of 12 values of `lora_unet_blocks_0_proj.lora_up.weight`"), std::string::npos) << overflow;
  EXPECT_NE(overflow.find("save.dtype: bf16"), std::string::npos) << overflow;
  EXPECT_EQ(get(path), before);
  write_lora(path, all, spec, "kohya", DType::bf16, {});
  all[1].alpha = 1e39;
  EXPECT_NE(error_of([&] { write_lora(path, all, spec, "kohya", DType::bf16, {}); }).find(".alpha"), std::string::npos);
  all[1].alpha = 1;
  all[1].down.as<float>()[0] = NAN;
  EXPECT_NE(error_of([&] { write_lora(path, all, spec, "diffusers", DType::f32, {}); }).find("NaN"), std::string::npos);
}

}  // namespace
}  // namespace lh::lora_file_test
