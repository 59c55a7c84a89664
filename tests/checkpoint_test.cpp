// One model in every layout that it is found in: each must give the same canonical weights.
#include "io/checkpoint.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/float_formats.h"
#include "io/inspect.h"
#include "io/key_map.h"
#include "support/io_files.h"
#include "support/paths.h"

namespace lh::checkpoint_test {
namespace {

using namespace test;

constexpr const char* yaml = R"(
components:
  denoiser:
    lora: {kohya: lora_unet_, diffusers: transformer., native: diffusion_model.}
    prefixes: [model.diffusion_model.]
    marker: img_in.weight
    ignore: ["junk*"]
    folder: transformer
    diffusers:
      - {native: img_in, from: x_embedder}
      - {native: "double_blocks.{i}.img_attn.qkv", from: ["transformer_blocks.{i}.attn.to_q", "transformer_blocks.{i}.attn.to_k", "transformer_blocks.{i}.attn.to_v"], how: concat_rows}
      - {native: "double_blocks.{i}.norm.scale", from: "transformer_blocks.{i}.attn.norm_q.weight", exact: true}
      - {native: "double_blocks.{i}.mod", from: "transformer_blocks.{i}.norm1.linear", how: swap_halves, when_rows: 2}
      - {native: "double_blocks.{i}.mod", from: "transformer_blocks.{i}.norm1.linear"}
      - {native: "single_blocks.{i}.linear1", from: ["single.{i}.to_q", "single.{i}.to_k", "single.{i}.to_v", "single.{i}.proj_mlp"]}
      - {native: final_layer, from: norm_out.linear, how: swap_halves}
      - {native: "deep.3.{*}", from: "down.0.{*}", exact: true}
  vae:
    config: vae_path
    help: The autoencoder.
    prefixes: ["first_stage_model.", "vae."]
    marker: encoder.conv_in.weight
    folder: vae
    diffusers:
      - {native: encoder.conv_in, from: encoder.conv_in}
      - {native: "mid.{j}.q", from: "mid_block.{j}.to_q", how: conv1x1}
      - {native: text_projection, from: text_projection.weight, how: transpose, exact: true}
  t5:
    config: t5_path
    help: The encoder.
    prefixes: ["text_encoders.t5."]
    marker: shared.weight
    aliases: {shared.weight: encoder.embed_tokens.weight}
    ignore: ["encoder.embed_tokens.weight", "*position_ids"]
    folder: text_encoder_2
)";

HostTensor rows(const HostTensor& t, int64_t first, int64_t count) {
  HostTensor out(Desc{t.desc.dtype, t.desc.shape.with(0, count)});
  const size_t row = t.data.size() / static_cast<size_t>(t.desc.shape[0]);
  std::copy_n(t.data.begin() + static_cast<std::ptrdiff_t>(row) * first, row * static_cast<size_t>(count),
              out.data.begin());
  return out;
}

HostTensor joined(const HostTensor& a, const HostTensor& b) {
  HostTensor out(Desc{a.desc.dtype, a.desc.shape.with(0, a.desc.shape[0] + b.desc.shape[0])});
  std::copy(b.data.begin(), b.data.end(), std::copy(a.data.begin(), a.data.end(), out.data.begin()));
  return out;
}

HostTensor swapped(const HostTensor& t) {
  const int64_t half = t.desc.shape[0] / 2;
  return joined(rows(t, half, half), rows(t, 0, half));
}

std::vector<Given> native_denoiser() {
  return {{"img_in.weight", counting({4, 3})},
          {"img_in.bias", counting({4}, 9)},
          {"double_blocks.0.img_attn.qkv.weight", counting({12, 4}, 1)},
          {"double_blocks.0.img_attn.qkv.bias", counting({12}, 2)},
          {"double_blocks.12.img_attn.qkv.weight", counting({12, 4}, 3)},
          {"double_blocks.12.img_attn.qkv.bias", counting({12}, 4)},
          {"double_blocks.0.norm.scale", counting({2}, 5)},
          {"double_blocks.0.mod.weight", counting({24, 4}, 6)},  // six rows a column: as it is
          {"double_blocks.0.mod.bias", counting({24}, 6)},
          {"double_blocks.12.mod.weight", counting({8, 4}, 7)},  // two: halves swapped
          {"double_blocks.12.mod.bias", counting({8}, 7)},
          {"single_blocks.3.linear1.weight", counting({28, 4}, 8)},
          {"final_layer.weight", counting({8, 4}, 10)},
          {"final_layer.bias", counting({8}, 11)},
          {"deep.3.a.b.weight", counting({2, 2}, 12)}};
}

// The same weights as diffusers stores them.
std::vector<Given> diffusers_denoiser() {
  std::vector<Given> out;
  for (const Given& g : native_denoiser()) {
    const HostTensor& t = g.tensor;
    const std::string suffix = g.name.substr(g.name.rfind('.'));
    const std::string block =
        g.name.find(".12.") != std::string::npos ? "transformer_blocks.12." : "transformer_blocks.0.";
    if (g.name.starts_with("img_in"))
      out.push_back({"x_embedder" + suffix, t});
    else if (g.name.find("qkv") != std::string::npos)
      for (int i = 0; i < 3; ++i) out.push_back({block + "attn.to_" + "qkv"[i] + suffix, rows(t, 4 * i, 4)});
    else if (g.name.ends_with(".scale"))
      out.push_back({block + "attn.norm_q.weight", t});
    else if (g.name.find(".mod.") != std::string::npos)
      out.push_back({block + "norm1.linear" + suffix, t.desc.shape[0] == 8 ? swapped(t) : t});
    else if (g.name.starts_with("final"))
      out.push_back({"norm_out.linear" + suffix, swapped(t)});
    else if (g.name.starts_with("deep"))
      out.push_back({"down.0.a.b.weight", t});
    else {
      for (int i = 0; i < 3; ++i) out.push_back({fmt::format("single.3.to_{}.weight", "qkv"[i]), rows(t, 4 * i, 4)});
      out.push_back({"single.3.proj_mlp.weight", rows(t, 12, 16)});
    }
  }
  return out;
}

std::vector<Given> prefixed(const std::string& prefix, std::vector<Given> tensors) {
  for (Given& g : tensors) g.name.insert(0, prefix);
  return tensors;
}

HostTensor read(const Checkpoint& c, const std::string& name, DType dtype = DType::f32, bool channels_last = false) {
  HostTensor out(Desc{dtype, c.weights().at(name).shape});
  c.read(name, dtype, channels_last, out.data);
  return out;
}

class CheckpointTest : public ::testing::Test {
 protected:
  void expect_denoiser(const Checkpoint& c, const std::vector<Given>& want = native_denoiser()) const {
    for (const Given& g : want) {
      ASSERT_TRUE(c.weights().contains(g.name)) << g.name;
      EXPECT_EQ(c.weights().at(g.name).shape, g.tensor.desc.shape) << g.name;
      EXPECT_EQ(read(c, g.name).data, g.tensor.data) << g.name;
    }
  }
  Checkpoint open(const std::map<std::string, std::filesystem::path>& paths) const { return Checkpoint(spec, paths); }

  TempDir dir;
  CheckpointSpec spec = CheckpointSpec::parse(yaml, "tiny");
};

TEST_F(CheckpointTest, SingleFilesBarePrefixedAndMixed) {
  write_file(dir / "bare.safetensors", native_denoiser());
  auto bundle = prefixed("model.diffusion_model.", native_denoiser());
  bundle.push_back({"model.diffusion_model.junk.weight", counting({1})});
  bundle.push_back({"model.diffusion_model.extra.weight", counting({1})});
  bundle.push_back({"first_stage_model.encoder.conv_in.weight", counting({2, 2, 1, 3})});
  bundle.push_back({"text_encoders.t5.encoder.embed_tokens.weight", counting({3, 2})});
  bundle.push_back({"alphas_cumprod", counting({3})});
  write_file(dir / "bundle.safetensors", bundle);
  const Checkpoint bare = open({{"name_or_path", dir / "bare.safetensors"}});
  EXPECT_EQ(bare.weights().size(), native_denoiser().size());
  expect_denoiser(bare);
  EXPECT_FALSE(bare.has("vae"));
  const Checkpoint all = open({{"name_or_path", dir / "bundle.safetensors"}});
  expect_denoiser(all);
  EXPECT_TRUE(all.weights().contains("extra.weight"));
  EXPECT_FALSE(all.weights().contains("junk.weight"));
  EXPECT_FALSE(all.weights().contains("alphas_cumprod"));
  EXPECT_TRUE(all.has("vae") && all.has("t5"));
  EXPECT_EQ(read(all, "t5:shared.weight").data, counting({3, 2}).data);
  EXPECT_FALSE(all.weights().contains("t5:encoder.embed_tokens.weight"));
  EXPECT_EQ(all.file_of("vae:encoder.conv_in.weight"), dir / "bundle.safetensors");
  EXPECT_EQ(all.fingerprint("denoiser").size(), 64u);
}

TEST_F(CheckpointTest, BareKeysDoNotTakeInOtherComponents) {
  auto tensors = native_denoiser();
  tensors.push_back({"vae.encoder.conv_in.weight", counting({2, 2, 1, 1})});
  write_file(dir / "a.safetensors", tensors);
  const Checkpoint c = open({{"name_or_path", dir / "a.safetensors"}});
  EXPECT_FALSE(c.weights().contains("vae.encoder.conv_in.weight"));
  EXPECT_TRUE(c.weights().contains("vae:encoder.conv_in.weight"));
}

TEST_F(CheckpointTest, OwnFileWinsOverTheBundle) {
  auto bundle = native_denoiser();
  bundle.push_back({"vae.encoder.conv_in.weight", counting({1, 1, 1, 1}, 1)});
  write_file(dir / "a.safetensors", bundle);
  write_file(dir / "vae.safetensors", {{"encoder.conv_in.weight", counting({1, 1, 1, 1}, 2)}});
  const Checkpoint c = open({{"name_or_path", dir / "a.safetensors"}, {"vae_path", dir / "vae.safetensors"}});
  EXPECT_EQ(read(c, "vae:encoder.conv_in.weight").as<float>()[0], 2.0f);
}

TEST_F(CheckpointTest, DiffusersFolders) {
  const std::vector<Given> vae{{"encoder.conv_in.weight", counting({2, 3, 1, 2})},
                               {"mid_block.0.to_q.weight", counting({2, 2})},
                               {"mid_block.0.to_q.bias", counting({2})},
                               {"text_projection.weight", counting({2, 3})}};
  write_file(dir / "root/transformer/diffusion_pytorch_model.safetensors", diffusers_denoiser());
  write_file(dir / "root/vae/diffusion_pytorch_model.fp16.safetensors", vae);
  put(dir / "root/model_index.json", "{}");
  const Checkpoint whole = open({{"name_or_path", dir / "root"}});
  expect_denoiser(whole);
  EXPECT_EQ(whole.weights().at("vae:mid.0.q.weight").shape, (Shape{2, 2, 1, 1}));
  EXPECT_EQ(whole.weights().at("vae:mid.0.q.bias").shape, (Shape{2}));
  EXPECT_EQ(read(whole, "vae:text_projection").data, floats({3, 2}, {0, 3, 1, 4, 2, 5}).data);
  EXPECT_EQ(read(whole, "vae:encoder.conv_in.weight", DType::f32, true).data,
            floats({2, 1, 2, 3}, {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}).data);
  expect_denoiser(open({{"name_or_path", dir / "root/transformer"}}));
  expect_denoiser(open({{"name_or_path", dir / "root/transformer/diffusion_pytorch_model.safetensors"},
                        {"vae_path", dir / "root/vae"}}));
  EXPECT_EQ(probe_weights(spec, dir / "root").weights.size(), native_denoiser().size());
  EXPECT_EQ(probe_weights(spec, dir / "root/transformer").weights.at("final_layer.weight").shape, (Shape{8, 4}));
  EXPECT_FALSE(probe_weights(spec, dir / "root/vae").has_marker);
  EXPECT_NE(inspect(dir / "root", {}).find("4 tensors (4 F32)"), std::string::npos);
}

TEST_F(CheckpointTest, ShardsAndVariantsAreNeverMixed) {
  const auto all = diffusers_denoiser();
  const std::vector<Given> first(all.begin(), all.begin() + 5), second(all.begin() + 5, all.end());
  const auto folder = dir / "root/transformer";
  const auto shard = [&](const std::string& name, const std::vector<Given>& tensors) {
    write_file(folder / name, tensors);
  };
  nlohmann::json map;
  for (const Given& g : first) map[g.name] = "diffusion_pytorch_model-00001-of-00002.safetensors";
  for (const Given& g : second) map[g.name] = "diffusion_pytorch_model-00002-of-00002.safetensors";
  put(folder / "diffusion_pytorch_model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  shard("diffusion_pytorch_model-00001-of-00002.safetensors", first);
  shard("diffusion_pytorch_model.fp16.safetensors", {{"stray", counting({1})}});
  EXPECT_NE(error_of([&] {
              open({{"name_or_path", dir / "root"}});
            }).find("shards are missing: diffusion_pytorch_model-00002-of-00002"),
            std::string::npos);
  shard("diffusion_pytorch_model-00002-of-00002.safetensors", second);
  expect_denoiser(open({{"name_or_path", dir / "root"}}));
  put(folder / "diffusion_pytorch_model.safetensors.index.json",
      R"({"weight_map": {"a": "../../secret.safetensors"}})");
  EXPECT_NE(error_of([&] { open({{"name_or_path", dir / "root"}}); }).find("plain name"), std::string::npos);
  put(folder / "diffusion_pytorch_model.safetensors.index.json", "{\"weight_map\": 3");
  EXPECT_NE(error_of([&] { open({{"name_or_path", dir / "root"}}); }).find("weight_map"), std::string::npos);
}

TEST_F(CheckpointTest, DiffusersMistakesAreNamed) {
  const auto file = dir / "root/transformer/diffusion_pytorch_model.safetensors";
  const auto error = [&] { return error_of([&] { open({{"name_or_path", dir / "root"}}); }); };
  auto tensors = diffusers_denoiser();
  tensors.push_back({"mystery.weight", counting({1})});
  write_file(file, tensors);
  EXPECT_NE(error().find("\"mystery.weight\" (1 in all) is not in the plugin's key map for `denoiser`"),
            std::string::npos)
      << error();
  EXPECT_EQ(probe_weights(spec, dir / "root").weights.size(), native_denoiser().size() + 1);
  EXPECT_TRUE(probe_weights(spec, dir / "root").weights.contains("mystery.weight"));  // a probe sees it as it is
  tensors = diffusers_denoiser();
  std::erase_if(tensors, [](const Given& g) { return g.name == "transformer_blocks.0.attn.to_k.bias"; });
  write_file(file, tensors);
  EXPECT_NE(error().find("\"double_blocks.0.img_attn.qkv.bias\" needs 3 tensors"), std::string::npos) << error();
  tensors = diffusers_denoiser();
  for (Given& g : tensors)
    if (g.name == "transformer_blocks.0.attn.to_k.weight") g.tensor = counting({4, 5});
  write_file(file, tensors);
  EXPECT_NE(error().find("shapes [4, 4] and [4, 5] do not fit together"), std::string::npos) << error();
  std::filesystem::remove(file);
  put(dir / "root/transformer/diffusion_pytorch_model.bin", "PK");
  EXPECT_NE(error().find("PyTorch pickle"), std::string::npos) << error();
}

TEST_F(CheckpointTest, PathMistakesAreNamed) {
  write_file(dir / "a.safetensors", native_denoiser());
  const auto a = dir / "a.safetensors";
  EXPECT_NE(error_of([&] { open({{"name_or_path", dir / "none"}}); }).find("does not exist"), std::string::npos);
  EXPECT_NE(error_of([&] { open({}); }).find("model.name_or_path is missing"), std::string::npos);
  EXPECT_NE(error_of([&] {
              open({{"name_or_path", a}, {"clip_path", a}});
            }).find("no such file; it knows"),
            std::string::npos);
  const std::string text = error_of([&] { open({{"name_or_path", a}, {"vae_path", a}}); });
  EXPECT_NE(text.find("tensor \"encoder.conv_in.weight\", alone or after first_stage_model. or vae."),
            std::string::npos)
      << text;
  EXPECT_NE(error_of([&] {
              read(open({{"name_or_path", a}}), "img_in.weight").data.resize(1);
              open({{"name_or_path", a}}).fingerprint("vae");
            }).find("no component"),
            std::string::npos);
  const Checkpoint c = open({{"name_or_path", a}});
  std::vector<std::byte> buffer(4);
  EXPECT_NE(
      error_of([&] { c.read("nobody", DType::f32, false, buffer); }).find("no weight \"nobody\" in " + a.string()),
      std::string::npos);
  EXPECT_NE(error_of([&] { c.read("img_in.weight", DType::f32, false, buffer); }).find("the buffer 4"),
            std::string::npos);
}

// fp8 layers in both spellings, with one scale and with one per row.
TEST_F(CheckpointTest, ScaledFp8IsMultipliedOut) {
  const HostTensor codes = as_type(floats({2, 2}, {1, 2, -4, 0.5f}), DType::f8_e4m3);
  const HostTensor one = floats(Shape{}, {0.25f}), per_row = floats({2, 1}, {0.5f, 3});
  const std::string quant = R"({"format": "float8_e4m3fn"})";
  HostTensor text(Desc{DType::u8, {static_cast<int64_t>(quant.size())}});
  std::memcpy(text.data.data(), quant.data(), quant.size());
  struct Case {
    std::vector<Given> extra;
    std::vector<float> want;
  };
  const std::vector<Case> cases{
      {{}, {1, 2, -4, 0.5f}},
      {{{"scaled_fp8", as_type(floats({2}, {0, 0}), DType::f8_e4m3)},
        {"img_in.scale_weight", one},
        {"img_in.scale_input", one}},
       {0.25f, 0.5f, -1, 0.125f}},
      {{{"img_in.weight_scale", one}, {"img_in.input_scale", one}, {"img_in.comfy_quant", text}},
       {0.25f, 0.5f, -1, 0.125f}},
      {{{"img_in.weight_scale", per_row}}, {0.5f, 1, -12, 1.5f}}};
  for (size_t i = 0; i < cases.size(); ++i)
    for (const char* prefix : {"", "model.diffusion_model."}) {
      std::vector<Given> tensors{{"img_in.weight", codes}, {"img_in.bias", as_type(counting({2}), DType::bf16)}};
      tensors.insert(tensors.end(), cases[i].extra.begin(), cases[i].extra.end());
      write_file(dir / "a.safetensors", prefixed(prefix, tensors));
      const Checkpoint c = open({{"name_or_path", dir / "a.safetensors"}});
      EXPECT_EQ(c.weights().size(), 2u) << i;
      EXPECT_EQ(c.weights().at("img_in.weight").dtype, DType::f8_e4m3);
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3})
        EXPECT_EQ(read(c, "img_in.weight", dtype).data, as_type(floats({2, 2}, cases[i].want), dtype).data)
            << i << " " << dtype_name(dtype);
    }
}

// Codes and factors as they are stored; their products are what reading in float32 gives.
TEST_F(CheckpointTest, Fp8IsReadAsStored) {
  const std::string qkv = "double_blocks.0.img_attn.qkv.weight";
  const auto q = [](DType dtype, float first) { return as_type(counting({4, 4}, first), dtype); };
  const auto in = [](const char* part) { return std::string("transformer_blocks.0.attn.to_") + part; };
  const auto expect = [&](const std::vector<Given>& parts, const std::optional<WeightForm>& form,
                          const std::vector<float>& factors) {
    std::vector<Given> tensors{{"x_embedder.weight", counting({4, 3})}};
    tensors.insert(tensors.end(), parts.begin(), parts.end());
    write_file(dir / "m" / "transformer" / "diffusion_pytorch_model.safetensors", tensors);
    const Checkpoint c = open({{"name_or_path", dir / "m"}});
    ASSERT_EQ(c.stored_fp8(qkv), form);
    if (!form) return;
    HostTensor codes(Desc{form->dtype, {12, 4}});
    std::vector<float> got(static_cast<size_t>(form->factors));
    c.read_codes(qkv, form->dtype, codes.data, std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, factors);
    HostTensor values = as_type(codes, DType::f32);
    for (size_t i = 0; i < 48 && !got.empty(); ++i) values.as<float>()[i] *= got[i / 4];
    EXPECT_EQ(values.data, read(c, qkv, DType::f32).data);
  };
  const DType e4 = DType::f8_e4m3, e5 = DType::f8_e5m2;
  const HostTensor half = floats(Shape{}, {0.5f}), rows = floats({4, 1}, {1, 2, 3, 4});
  const std::vector<Given> plain{{in("q.weight"), q(e5, 0)}, {in("k.weight"), q(e5, 1)}, {in("v.weight"), q(e5, 2)}};
  expect(plain, WeightForm{e5, 0}, {});
  std::vector<Given> scaled = plain;
  scaled.push_back({in("q.weight_scale"), half});
  scaled.push_back({in("v.weight_scale"), rows});
  expect(scaled, WeightForm{e5, 12}, {0.5f, 0.5f, 0.5f, 0.5f, 1, 1, 1, 1, 1, 2, 3, 4});
  std::vector<Given> mixed = plain;
  mixed[1].tensor = q(e4, 1);
  expect(mixed, std::nullopt, {});
}

TEST_F(CheckpointTest, OtherQuantisationsAreRefusedByName) {
  const std::string quant = R"({"format": "nvfp4"})";
  HostTensor text(Desc{DType::u8, {static_cast<int64_t>(quant.size())}});
  std::memcpy(text.data.data(), quant.data(), quant.size());
  const auto error = [&](const std::vector<Given>& extra, const std::map<std::string, std::string>& metadata) {
    std::vector<Given> tensors{{"img_in.weight", as_type(counting({2, 2}), DType::f8_e4m3)}};
    tensors.insert(tensors.end(), extra.begin(), extra.end());
    write_file(dir / "a.safetensors", tensors, metadata);
    return error_of([&] { open({{"name_or_path", dir / "a.safetensors"}}); });
  };
  EXPECT_NE(error({{"img_in.comfy_quant", text}}, {}).find("quantised as nvfp4"), std::string::npos);
  EXPECT_NE(error({}, {{"_quantization_metadata", R"({"layers": {"img_in": {"format": "int8_tensorwise"}}})"}})
                .find("quantised as int8_tensorwise"),
            std::string::npos);
  EXPECT_NE(error({}, {{"_quantization_metadata", "?"}}).find("not JSON"), std::string::npos);
  EXPECT_NE(error({{"img_in.weight_scale", counting({3})}}, {}).find("expected one float or 2"), std::string::npos);
  EXPECT_EQ(error({}, {{"_quantization_metadata", R"({"layers": {"img_in": {"format": "float8_e4m3fn"}}})"}}), "");
}

TEST_F(CheckpointTest, EveryConversionRoundsLikeTheReference) {
  std::vector<float> values;  // every bf16 and f16 value, spread over f32 too
  for (uint32_t i = 0; i < 65536; ++i) values.push_back(float_from_bf16(static_cast<uint16_t>(i)));
  for (uint32_t i = 0; i < 65536; ++i) values.push_back(float_from_f16(static_cast<uint16_t>(i)) * 1.0002f);
  values.resize(400000, 0.1f);
  for (size_t i = 131072; i < values.size(); ++i)
    values[i] = std::ldexp(1.0f + static_cast<float>(i % 4099) / 4099, static_cast<int>(i % 61) - 35);
  const HostTensor all = floats({static_cast<int64_t>(values.size())}, values);
  for (const DType from : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3, DType::f8_e5m2}) {
    const HostTensor stored = as_type(all, from);
    write_file(dir / "a.safetensors", {{"img_in.weight", stored}});
    const Checkpoint c = open({{"name_or_path", dir / "a.safetensors"}});
    for (const DType to : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3, DType::f8_e5m2})
      EXPECT_TRUE(read(c, "img_in.weight", to).data == as_type(stored, to).data)
          << dtype_name(from) << " to " << dtype_name(to);
  }
}

TEST(CheckpointSpecTest, MistakesNamePluginAndPlace) {
  const std::string head = "components:\n  denoiser:\n    marker: a.weight\n";
  struct Case {
    std::string yaml, text;  // text: what follows "plugin broken-plugin: checkpoint YAML:"
  };
  const std::vector<Case> cases{
      {"components: [", "1:1: not YAML: "},
      {"{}", "1:1: `components` must list at least one component"},
      {"components: {}", "1:13: `components` must list"},
      {"components:\n  denoiser: {}\n", "2:13: component `denoiser` needs a `marker`"},
      {"components:\n  a: {marker: &x b}\n", "2:15: anchors (&name) are not allowed"},
      {head + "    prefixs: [a]\n",
       "4:5: unknown field `prefixs` in component `denoiser`. Did you mean `prefixes`? Known: config, "},
      {head + "    lora: {koya: a}\n",
       "4:12: unknown field `koya` in lora. Did you mean `kohya`? Known: kohya, diffusers, native, parts"},
      {head + "    lora: {parts: [{name: a, of: b}]}\n", "4:20: an item of lora.parts needs the field `rows`"},
      {head + "    lora: {parts: [{name: a, of: b, rows: [3, 1]}]}\n", "4:43: rows must be [first, end)"},
      {head + "    lora: {parts: [{name: a, of: b, rows: [-1, 1]}]}\n",
       "4:44: an item of rows must be an integer, 0 to 1024, found -1"},
      {head + "    lora: {parts: [{name: 'a.{i}', of: 'b', rows: [0, 1]}]}\n",
       "4:20: `a.{i}` and `b` must have the same {...}"},
      {head + "lora_loaders: {p: [{components: b, names: '{native}', tensors: alpha}]}\n",
       "4:33: there is no component `b`"},
      {head + "lora_loaders: {p: [{components: denoiser, names: a, tensors: alpha}]}\n",
       "4:50: name `a` must be a prefix and one of {native}, {native_}"},
      {head + "lora_loaders: {p: [{components: denoiser, names: '{native}', tensors: zip}]}\n",
       "4:71: tensors `zip` is unknown; known: pairs, lora_down, lora_A"},
      {head + "lora_loaders: {p: [{components: denoiser, names: '{native}', tensors: diff, only: '('}]}\n",
       "4:83: only: `(` is no regular expression"},
      {head + "lora_loaders: {p: [{names: '{native}', tensors: diff}]}\n",
       "4:20: a lora_loaders rule needs the field `components`"},
      {head + "    marker: b\n", "4:5: marker: set twice, first in line 3"},
      {head + "    diffusers:\n      - {native: a}\n", "5:9: a diffusers rule needs the field `from`"},
      {head + "    diffusers:\n      - {native: a, from: b, how: magic}\n",
       "5:35: how `magic` is unknown; known: copy, "},
      {head + "    diffusers:\n      - {native: a, from: [b, c], how: copy}\n", "5:27: how `copy` takes one `from`"},
      {head + "    diffusers:\n      - {native: [a, b], from: c, how: copy}\n",
       "5:18: how `copy` takes one `native`, found 2"},
      {head + "    diffusers:\n      - {native: a, from: c, how: split_rows}\n",
       "5:18: how `split_rows` takes several `native`, found 1"},
      {head + "    diffusers:\n      - {native: [a, b], from: [c, d]}\n",
       "5:32: how `split_rows` takes one `from`, found 2"},
      {head + "    diffusers:\n      - {native: 'a.{i}', from: 'b.{j}'}\n",
       "5:9: `a.{i}` and `b.{j}` must have the same"},
      {head + "    diffusers:\n      - {native: 'a.{i', from: 'b'}\n", "5:9: `a.{i`: '{' without"},
      {head + "    diffusers:\n      - {native: a, from: b, exact: perhaps}\n",
       "5:37: exact must be true or false, found perhaps"},
      {head + "    aliases: [a]\n", "4:14: aliases must be a mapping, found a list"},
      {head + "lora: {prefix: x}\n", "4:1: unknown field `lora` in the checkpoint. Known: components"}};
  for (const Case& c : cases)
    EXPECT_THAT(error_of([&] { CheckpointSpec::parse(c.yaml, "broken-plugin"); }),
                testing::StartsWith("plugin broken-plugin: checkpoint YAML:" + c.text))
        << c.yaml;
}

// ---- names of a folder in a single file, tensors split by rows, keys beside the prefix

constexpr const char* split_yaml = R"(
components:
  denoiser:
    prefixes: [model.]
    marker: deep.weight
    also: [mark, sigma.max]
    ignore: ["junk*"]
    folder: unet
    diffusers:
      - {native: deep, from: shallow}
      - {native: ["{i}.q", "{i}.k", "{i}.v"], from: "{i}.qkv"}
      - {native: [a.weight, b.weight], from: in_proj_weight, exact: true}
  text:
    prefixes: [text.]
    marker: words.weight
    diffusers:
      - {native: words, from: vocabulary}
)";

class SplitTest : public ::testing::Test {
 protected:
  Checkpoint open(const std::vector<Given>& tensors) {
    write_file(dir / "file.safetensors", tensors);
    return {CheckpointSpec::parse(split_yaml, "tiny"), {{"name_or_path", dir / "file.safetensors"}}};
  }
  TempDir dir;
  const std::vector<Given> renamed{{"shallow.weight", counting({2, 2}, 1)},
                                   {"0.qkv.weight", counting({6, 2}, 2)},
                                   {"0.qkv.bias", counting({6}, 3)},
                                   {"in_proj_weight", counting({4, 3}, 4)}};
};

TEST_F(SplitTest, OneTensorMakesSeveral) {
  std::vector<Given> bundle = prefixed("model.", renamed);
  bundle.push_back({"model.junk.weight", counting({1})});
  bundle.push_back({"mark", HostTensor(Desc{DType::f32, {0}})});
  bundle.push_back({"stranger", counting({1})});
  bundle.push_back({"text.vocabulary.weight", counting({3, 1})});
  std::vector<Given> bare = renamed;
  bare.push_back({"mark", counting({1})});
  bare.push_back({"text.vocabulary.weight", counting({3, 1})});
  std::vector<Given> folder = renamed;
  folder.push_back({"mark", counting({1})});
  write_file(dir / "root/unet/diffusion_pytorch_model.safetensors", folder);
  const Checkpoint all[] = {
      open(bundle), open(bare), {CheckpointSpec::parse(split_yaml, "tiny"), {{"name_or_path", dir / "root"}}}};
  for (const Checkpoint& c : all) {
    std::set<std::string> names;
    for (const auto& [name, desc] : c.weights()) names.insert(name);
    std::set<std::string> want{"deep.weight", "0.q.weight", "0.k.weight", "0.v.weight", "0.q.bias",
                               "0.k.bias",    "0.v.bias",   "a.weight",   "b.weight",   "mark"};
    if (c.has("text")) want.insert("text:words.weight");
    EXPECT_EQ(names, want);
    for (int i = 0; i < 3; ++i) {
      const std::string part = std::string("0.") + "qkv"[i];
      EXPECT_EQ(read(c, part + ".weight").data, rows(renamed[1].tensor, 2 * i, 2).data) << part;
      EXPECT_EQ(read(c, part + ".bias").data, rows(renamed[2].tensor, 2 * i, 2).data) << part;
      EXPECT_EQ(read(c, part + ".weight", DType::bf16).data,
                as_type(rows(renamed[1].tensor, 2 * i, 2), DType::bf16).data);
    }
    EXPECT_EQ(read(c, "b.weight").data, rows(renamed[3].tensor, 2, 2).data);
    EXPECT_EQ(c.weights().at("b.weight").shape, (Shape{2, 3}));
  }
}

// fp8 codes and factors of the part that a tensor is made of.
TEST_F(SplitTest, PartsOfFp8StayFp8) {
  struct Case {
    std::vector<Given> scale;
    int64_t factors;
    std::vector<float> of_k;
  };
  const Case cases[] = {{{}, 0, {}},
                        {{{"0.qkv.weight_scale", floats(Shape{}, {0.5f})}}, 1, {0.5f}},
                        {{{"0.qkv.weight_scale", counting({6, 1}, 1)}}, 2, {3, 4}}};
  for (const Case& row : cases) {
    std::vector<Given> tensors{renamed[0], {"0.qkv.weight", as_type(counting({6, 2}), DType::f8_e4m3)}};
    tensors.insert(tensors.end(), row.scale.begin(), row.scale.end());
    const Checkpoint c = open(prefixed("model.", tensors));
    const WeightForm form{DType::f8_e4m3, row.factors};
    ASSERT_EQ(c.stored_fp8("0.k.weight"), form);
    HostTensor codes(Desc{DType::f8_e4m3, {2, 2}});
    std::vector<float> factors(row.of_k.size());
    c.read_codes("0.k.weight", form.dtype, codes.data, std::as_writable_bytes(std::span(factors)));
    EXPECT_EQ(factors, row.of_k);
    HostTensor values = as_type(codes, DType::f32);
    EXPECT_EQ(values.data, counting({2, 2}, 4).data);
    for (size_t i = 0; i < 4 && !factors.empty(); ++i) values.as<float>()[i] *= factors[i / 2 % factors.size()];
    EXPECT_EQ(values.data, read(c, "0.k.weight").data);
  }
}

TEST_F(SplitTest, MistakesAreNamed) {
  std::vector<Given> tensors = renamed;
  tensors[1].tensor = counting({5, 2});
  EXPECT_NE(error_of([&] { open(prefixed("model.", tensors)); }).find("the rows of [5, 2] are not 3 equal parts"),
            std::string::npos);
  tensors = renamed;
  tensors.push_back({"mystery.weight", counting({1})});
  EXPECT_NE(error_of([&] {
              open(prefixed("model.", tensors));
            }).find("tensor \"model.mystery.weight\" (1 in all) is not in the plugin's key map for `denoiser`"),
            std::string::npos);
}

// A LoRA of one part has no name in the other spelling, which knows only the whole.
TEST_F(SplitTest, PartsHaveNoModuleOfTheirOwn) {
  const KeyMap map(CheckpointSpec::parse(split_yaml, "tiny").component("denoiser")->diffusers);
  EXPECT_EQ(map.diffusers("deep", 0)->modules, std::vector<std::string>{"shallow"});
  EXPECT_FALSE(map.diffusers("0.q", 0));
}

// Two layouts give a name to two tensors: a key that one of them alone has says which.
TEST_F(CheckpointTest, RulesBesideAKeyComeFirstWhereItIs) {
  const CheckpointSpec spec = CheckpointSpec::parse(R"(
components:
  denoiser:
    marker: mark
    diffusers:
      - {native: mark, from: mark, exact: true}
      - {native: "flat.{i}", from: "level.{i}.conv"}
      - {native: "deep.{i}.deep", from: "level.{i}.conv", beside: sign.weight}
      - {native: sign, from: sign}
)",
                                                    "tiny");
  const auto names = [&](const std::vector<Given>& tensors) {
    write_file(dir / "root/diffusion_pytorch_model.safetensors", tensors);
    const Checkpoint c(spec, {{"name_or_path", dir / "root"}});
    std::set<std::string> found;
    for (const auto& [name, desc] : c.weights()) found.insert(name);
    return found;
  };
  std::vector<Given> tensors{{"mark", counting({1})}, {"level.0.conv.weight", counting({1})}};
  EXPECT_EQ(names(tensors), (std::set<std::string>{"mark", "flat.0.weight"}));
  tensors.push_back({"sign.weight", counting({1})});
  EXPECT_EQ(names(tensors), (std::set<std::string>{"mark", "deep.0.deep.weight", "sign.weight"}));
}

TEST(KeyPatternTest, MatchesNumbersAndText) {
  const KeyPattern blocks("a.{i}.b.{j}.c");
  EXPECT_TRUE(blocks.match("a.0.b.12.c"));
  for (const char* key : {"a.0.b.x.c", "a..b.1.c", "a.0.b.1.cc", "xa.0.b.1.c", "a.0.b.1.", ""})
    EXPECT_FALSE(blocks.match(key)) << key;
  EXPECT_EQ(KeyPattern("q.{j}.{i}").fill(*blocks.match("a.0.b.12.c")), "q.12.0");
  EXPECT_EQ(KeyPattern("y.{*}").fill(*KeyPattern("x.{*}.weight").match("x.a.b.weight")), "y.a.b");
  EXPECT_TRUE(KeyPattern("a.{i}.{i}").match("a.3.3"));
  EXPECT_FALSE(KeyPattern("a.{i}.{i}").match("a.3.4"));
}

// A key of each header list through a header-only file would need its gigabytes: the toy model is small and real.
TEST_F(CheckpointTest, RealFilesWhereTheyAre) {
  const auto shared = std::filesystem::path(source_dir()) / "../shared/data/toy_flux";
  if (!std::filesystem::exists(shared)) GTEST_SKIP() << "no shared data here";
  const CheckpointSpec toy = CheckpointSpec::parse(
      "components:\n  denoiser: {marker: double_blocks.0.img_attn.qkv.weight}\n  vae: {config: vae_path, help: a, "
      "marker: "
      "encoder.conv_in.weight}\n",
      "toy");
  const Checkpoint c(toy, {{"name_or_path", shared / "flux_toy.safetensors"}, {"vae_path", shared / "ae.safetensors"}});
  EXPECT_EQ(c.weights().at("double_blocks.0.img_attn.qkv.weight"), (Desc{DType::bf16, {768, 256}}));
  EXPECT_EQ(c.weights().at("vae:encoder.conv_in.weight").dtype, DType::f16);
  for (const auto& [name, desc] : c.weights()) {
    const HostTensor values = read(c, name);
    EXPECT_TRUE(std::ranges::all_of(values.as<float>(), [](float v) { return std::isfinite(v); })) << name;
  }
}

}  // namespace
}  // namespace lh::checkpoint_test
