// resize, convert, merge and extract on real files: what each result changes is held against float64.
#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <sstream>

#include "io/lora_merge.h"
#include "lora/extract.h"
#include "lora/input.h"
#include "lora/merge_loras.h"
#include "lora/modules.h"
#include "lora/resize.h"
#include "support/lora_cases.h"

namespace lh::lora_tools_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class LoraTools : public ::testing::Test {
 protected:
  LoraTools() {
    write_file(base, base_tensors());
    write_file(clip, {{"text_model.layers.0.fc1.weight", wave({8, 4}, 9)}});
  }
  ~LoraTools() override { set_fault_hook({}); }

  Checkpoint open() const { return {spec, {{"name_or_path", base}, {"clip_path", clip}}}; }

  // What a file changes of a weight: the weight is zero before, so that nothing is rounded away beside it.
  Matrix change(const fs::path& file, const std::string& weight, double strength = 1) const {
    const auto weights = open().weights();
    HostTensor values(Desc{DType::f32, weights.at(weight).shape});
    LoraMerge(spec, weights, {{file, strength}}).apply(weight, values.desc.shape, values.as<float>());
    return matrix(values);
  }

  // To a share of the largest number; where sums of products of four numbers below 1/2 cancel, to their rounding.
  static void expect_close(const Matrix& got, const Matrix& want, double tolerance) {
    ASSERT_EQ(got.values.size(), want.values.size());
    double most = 0;
    for (const double v : want.values) most = std::max(most, std::abs(v));
    for (size_t i = 0; i < want.values.size(); ++i)
      ASSERT_NEAR(got.values[i], want.values[i], tolerance * most + 1e-8) << i;
  }

  static double square(const Matrix& m) {
    double sum = 0;
    for (const double v : m.values) sum += v * v;
    return sum;
  }

  fs::path save(const ResizedLora& made, const std::string& name = "out.safetensors") const {
    save_lora(dir / name, made.tensors, made.metadata);
    return dir / name;
  }

  // Every kind of adapter in a file of its own, under the native names.
  fs::path write(const Algebra& algebra, const std::string& name = "lora.safetensors") const {
    std::vector<Given> tensors;
    for (const Given& t : algebra.tensors) {
      std::string key = "diffusion_model." + std::string(algebra.weight) + t.name;
      tensors.push_back({std::move(key), t.tensor});
    }
    write_file(dir / name, tensors);
    return dir / name;
  }

  std::vector<Given> pair(const std::string& name, const std::string& a, const std::string& b, int64_t rows,
                          int64_t rank, double phase) const {
    return {{name + a, wave({rank, 4}, phase)}, {name + b, wave({rows, rank}, phase + 1)}};
  }

  std::vector<LoraModule> modules(const fs::path& file) const {
    const Checkpoint checkpoint = open();
    const LoraFile lora = open_lora(file);
    return modules_of(lora, LoraNameTable(spec, checkpoint.weights()), checkpoint.weights(), Unmatched::refuse);
  }

  TempDir dir;
  CheckpointSpec spec = CheckpointSpec::parse(lora_yaml, "tiny");
  fs::path base = dir / "base.safetensors", clip = dir / "clip.safetensors", lora = dir / "lora.safetensors";
};

constexpr double float32 = 1e-6;

TEST_F(LoraTools, EveryChangeIsAProduct) {
  for (const Algebra& algebra : algebras()) {
    SCOPED_TRACE(algebra.what);
    const LoraFile file = open_lora(write(algebra));
    const LoraEntry& entry = file.entries.at(0);
    const LoraProduct product = product_of(file, entry);
    EXPECT_LE(product.rank, std::min(product.rows(), product.columns()));
    Matrix got{product.rows(), product.columns()};
    const std::vector<float> values = multiplied(product);
    for (size_t i = 0; i < values.size(); ++i) got.values[i] = values[i] * entry.scale();
    expect_close(got, algebra.delta, float32);
  }
}

// ---- resize

TEST_F(LoraTools, ResizeKeepsTheChange) {
  for (const Algebra& algebra : algebras()) {
    SCOPED_TRACE(algebra.what);
    const LoraFile file = open_lora(write(algebra));
    if (file.entries[0].kind != LoraKind::lora) {
      EXPECT_THAT(error_of([&] { resize_lora(file, {.rank = 1}, {}); }),
                  AllOf(HasSubstr(algebra.weight), HasSubstr("--into lora")));
      continue;
    }
    const std::string weight = std::string(algebra.weight) + ".weight";
    const ResizedLora same = resize_lora(file, {.rank = 64}, {});
    EXPECT_NEAR(same.lines.at(0).kept, 1, 1e-12);
    EXPECT_LE(same.lines[0].after, same.lines[0].before) << "never above its own rank";
    expect_close(change(save(same), weight), algebra.delta, float32);

    const ResizedLora small = resize_lora(file, {.rank = 1}, {});
    const Matrix got = change(save(small), weight);
    const LoraFile out = open_lora(dir / "out.safetensors");
    EXPECT_EQ(out.entries.at(0).rank, 1);
    EXPECT_EQ(out.entries[0].name, file.entries[0].name);
    EXPECT_NEAR(out.entries[0].scale(), file.entries[0].scale(), 1e-7) << "alpha / rank stays";
    EXPECT_NEAR(small.lines[0].norm * small.lines[0].norm, square(algebra.delta), 1e-6 * square(algebra.delta));
    EXPECT_NEAR(square(got + -1.0 * algebra.delta), (1 - small.lines[0].kept) * square(algebra.delta),
                1e-6 * square(algebra.delta))
        << "the error is the one that is said";
    EXPECT_EQ(out.file->metadata().at("ss_network_dim"), "1");
  }
}

TEST_F(LoraTools, ResizeLeavesTheRest) {
  const std::string x = "lora_unet_blocks_0_proj";
  std::vector<Given> tensors = pair(x, ".lora_down.weight", ".lora_up.weight", 4, 3, 1);
  HostTensor magnitude = wave({1, 4}, 3);
  tensors.push_back({x + ".dora_scale", magnitude});
  tensors.push_back({x + ".alpha", as_type(floats({}, {6}), DType::bf16)});
  tensors.push_back({"diffusion_model.res.1.norm.w_norm", wave({6}, 2)});
  tensors.push_back({"diffusion_model.blocks.0.mod.diff_b", wave({8}, 4)});
  write_file(
      lora, tensors,
      {{"ss_tag_frequency", "{}"}, {"ss_network_dim", "3"}, {"sshs_model_hash", "old"}, {"modelspec.title", "dog"}});
  const fs::path out = save(resize_lora(open_lora(lora), {.rank = 2}, DType::f16));
  const LoraFile made = open_lora(out);
  const WeightFile& file = *made.file;
  EXPECT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(converted(file.read(x + ".dora_scale"), DType::f32).data,
            converted(as_type(magnitude, DType::f16), DType::f32).data);
  EXPECT_EQ(file.read(x + ".alpha").as<float>()[0], 4) << "alpha / rank is 2 as before";
  EXPECT_EQ(file.find(x + ".lora_down.weight")->desc, (Desc{DType::f16, {2, 4}}));
  EXPECT_EQ(file.metadata().at("ss_network_dim"), "2");
  EXPECT_EQ(file.metadata().at("ss_tag_frequency"), "{}");
  EXPECT_EQ(file.metadata().at("modelspec.title"), "dog");
  EXPECT_NE(file.metadata().at("sshs_model_hash"), "old");
}

// Without alphas every loader takes a scale of 1, and one rank for all modules of a component.
TEST_F(LoraTools, ResizeOfFilesWithoutAlphas) {
  const std::string q = "transformer.t.0.attn.to_q", p = "transformer.t.0.attn.to_out.0";
  std::vector<Given> tensors = pair(q, ".lora_A.weight", ".lora_B.weight", 4, 2, 1);
  for (const Given& t : pair(p, ".lora_A.weight", ".lora_B.weight", 4, 1, 5)) tensors.push_back(t);
  write_file(
      lora, tensors,
      {{"lora_adapter_metadata",
        R"({"transformer.r": 1, "transformer.lora_alpha": 6, "transformer.rank_pattern": {"t.0.attn.to_q": 2}})"}});
  const std::map<std::string, Matrix> before{{"blocks.0.qkv.weight", change(lora, "blocks.0.qkv.weight")},
                                             {"blocks.0.proj.weight", change(lora, "blocks.0.proj.weight")}};
  const ResizedLora made = resize_lora(open_lora(lora), {.energy = 1}, {});
  ASSERT_EQ(made.lines.size(), 2u);
  const fs::path out = save(made);
  for (const auto& [weight, want] : before) expect_close(change(out, weight), want, float32);
  const Safetensors file(out);
  EXPECT_FALSE(file.metadata().contains("lora_adapter_metadata")) << "the scale is in the matrices";
  EXPECT_EQ(file.find(p + ".lora_A.weight")->desc.shape, (Shape{2, 4})) << "filled up";
  EXPECT_EQ(file.tensors().size(), 4u);
}

// ---- convert

struct Spelled {
  const char *name, *a, *b;
  int64_t rows;
};

TEST_F(LoraTools, ConvertBetweenAllFormats) {
  const std::vector<std::vector<Spelled>> sources{
      {{"lora_unet_blocks_0_qkv", ".lora_down.weight", ".lora_up.weight", 12},
       {"lora_unet_blocks_0_mod", ".lora_down.weight", ".lora_up.weight", 8},
       {"lora_te1_text_model_layers_0_fc1", ".lora_down.weight", ".lora_up.weight", 8}},
      {{"diffusion_model.blocks.0.qkv", ".lora_A.weight", ".lora_B.weight", 12},
       {"text_encoders.clip.transformer.text_model.layers.0.fc1", ".lora_down.weight", ".lora_up.weight", 8},
       {"diffusion_model.blocks.0.mod", ".lora_down.weight", ".lora_up.weight", 8}},
      {{"transformer.t.0.attn.to_q", ".lora_A.weight", ".lora_B.weight", 4},
       {"transformer.t.0.attn.to_v", ".lora_A.weight", ".lora_B.weight", 4},
       {"transformer.t.0.norm1.linear", ".lora_A.weight", ".lora_B.weight", 8},
       {"text_encoder.layers.0.fc1", ".lora_A.weight", ".lora_B.weight", 8}},
      {{"lora_transformer_t_0_attn_to_k", ".lora_down.weight", ".lora_up.weight", 4},
       {"lycoris_t_0_norm1_linear", ".lora_down.weight", ".lora_up.weight", 8}}};
  const char* const weights[] = {"blocks.0.qkv.weight", "blocks.0.mod.weight", "clip:text_model.layers.0.fc1.weight"};
  for (const auto& source : sources)
    for (const bool alphas : {false, true}) {
      std::vector<Given> tensors;
      double phase = 1;
      for (const Spelled& s : source) {
        for (const Given& t : pair(s.name, s.a, s.b, s.rows, 2, phase)) tensors.push_back(t);
        if (alphas) tensors.push_back({std::string(s.name) + ".alpha", floats({}, {static_cast<float>(phase)})});
        phase += 3;
      }
      write_file(lora, tensors);
      for (const std::string format : {"kohya", "comfyui", "diffusers"}) {
        SCOPED_TRACE(std::string(source[0].name) + (alphas ? " with alphas" : "") + " to " + format);
        write_lora(dir / "out.safetensors", modules(lora), spec, format, DType::f32, {});
        for (const char* const weight : weights)
          expect_close(change(dir / "out.safetensors", weight), change(lora, weight), float32);
        const LoraFile made = open_lora(dir / "out.safetensors");
        EXPECT_EQ(format_of(made, LoraNameTable(spec, open().weights()), spec), format);
      }
    }
}

// Names change, numbers do not.
TEST_F(LoraTools, ConvertIsExact) {
  std::vector<Given> tensors = pair("lora_unet_blocks_0_qkv", ".lora_down.weight", ".lora_up.weight", 12, 3, 1);
  tensors.push_back({"lora_unet_blocks_0_qkv.alpha", floats({}, {0.7f})});
  tensors.push_back({"lora_unet_res_1_conv.lora_down.weight", wave({2, 4, 3, 3}, 1)});
  tensors.push_back({"lora_unet_res_1_conv.lora_up.weight", wave({6, 2, 1, 1}, 2)});
  tensors.push_back({"lora_unet_res_1_skip.lora_down.weight", wave({2, 4}, 1)});
  tensors.push_back({"lora_unet_res_1_skip.lora_up.weight", wave({6, 2}, 2)});
  tensors.push_back({"lora_unet_blocks_0_proj.hada_w1_a", wave({4, 2}, 1)});
  tensors.push_back({"lora_unet_blocks_0_proj.hada_w1_b", wave({2, 4}, 2)});
  tensors.push_back({"lora_unet_blocks_0_proj.hada_w2_a", wave({4, 2}, 3)});
  tensors.push_back({"lora_unet_blocks_0_proj.hada_w2_b", wave({2, 4}, 4)});
  tensors.push_back({"lora_unet_blocks_0_proj.alpha", floats({}, {0.3f})});
  write_file(lora, tensors);
  const fs::path there = dir / "there.safetensors", back = dir / "back.safetensors";
  write_lora(there, modules(lora), spec, "comfyui", DType::f32, {});
  write_lora(back, modules(there), spec, "kohya", DType::f32, {});
  const Safetensors before(lora), after(back);
  for (const StoredTensor& t : before.tensors()) {
    ASSERT_NE(after.find(t.name), nullptr) << t.name;
    EXPECT_EQ(after.read(t.name).data, before.read(t.name).data) << t.name;
  }
  EXPECT_EQ(after.tensors().size(), before.tensors().size() + 2) << "alphas of the convolutions";
  EXPECT_EQ(after.find("lora_unet_res_1_skip.lora_down.weight")->desc.shape, (Shape{2, 4, 1, 1}));
  EXPECT_THAT(error_of([&] { write_lora(there, modules(lora), spec, "diffusers", DType::f32, {}); }),
              HasSubstr("hada_w1_a"));
}

// Parts that share their down matrix come from one module, and become it again.
TEST_F(LoraTools, ConvertJoinsWhatWasSplit) {
  const HostTensor down = wave({2, 4}, 1);
  std::vector<Given> tensors;
  for (const char* part : {"q", "k", "v"}) {
    const std::string name = std::string("transformer.t.0.attn.to_") + part;
    tensors.push_back({name + ".lora_A.weight", down});
    tensors.push_back({name + ".lora_B.weight", wave({4, 2}, part[0])});
    tensors.push_back({name + ".lora_magnitude_vector", wave({4}, part[0])});
  }
  write_file(lora, tensors);
  const std::vector<LoraModule> joined = modules(lora);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0].down.data, down.data);
  EXPECT_EQ(joined[0].up.desc.shape, (Shape{12, 2}));
  ASSERT_EQ(joined[0].others.size(), 1u);
  EXPECT_EQ(joined[0].others[0].second.desc.shape, (Shape{12, 1}));
  tensors.pop_back();  // one magnitude is missing: its rows have none
  write_file(lora, tensors);
  EXPECT_THAT(error_of([&] { modules(lora); }), HasSubstr("DoRA magnitude is for a part"));
  const std::string q = "transformer.t.0.attn.to_q";
  write_file(lora, {{q + ".hada_w1_a", wave({4, 2}, 1)},
                    {q + ".hada_w1_b", wave({2, 4}, 2)},
                    {q + ".hada_w2_a", wave({4, 2}, 3)},
                    {q + ".hada_w2_b", wave({2, 4}, 4)}});
  EXPECT_THAT(error_of([&] { modules(lora); }), AllOf(HasSubstr(q), HasSubstr("LoHa"), HasSubstr("--into lora")));
}

TEST_F(LoraTools, RetypeKeepsAlphasAndRefusesWhatDoesNotFit) {
  std::vector<Given> tensors = pair("lora_unet_blocks_0_qkv", ".lora_down.weight", ".lora_up.weight", 12, 3, 1);
  tensors.push_back({"lora_unet_blocks_0_qkv.alpha", floats({}, {0.7f})});
  write_file(lora, tensors, {{"ss_network_dim", "3"}, {"sshs_model_hash", "x"}});
  const fs::path out = save(retype_lora(open_lora(lora), DType::bf16));
  const Safetensors file(out);
  EXPECT_EQ(file.read("lora_unet_blocks_0_qkv.alpha").data, tensors[2].tensor.data);
  EXPECT_EQ(file.metadata().at("ss_network_dim"), "3");
  EXPECT_NE(file.metadata().at("sshs_model_hash"), "x");
  EXPECT_EQ(file.read("lora_unet_blocks_0_qkv.lora_up.weight").data, as_type(tensors[1].tensor, DType::bf16).data);
  tensors[1].tensor.as<float>()[5] = 70000;
  write_file(lora, tensors);
  const std::string before = get(out);
  EXPECT_THAT(error_of([&] { save(retype_lora(open_lora(lora), DType::f16)); }),
              AllOf(HasSubstr("1 of 36 values"), HasSubstr("lora_up"), HasSubstr("65504")));
  EXPECT_EQ(get(out), before);
}

// ---- merge into one LoRA

TEST_F(LoraTools, MergeIsTheSum) {
  const fs::path second = dir / "second.safetensors", third = dir / "third.safetensors", out = dir / "out.safetensors";
  std::vector<Given> one = pair("lora_unet_blocks_0_qkv", ".lora_down.weight", ".lora_up.weight", 12, 1, 1);
  one.push_back({"lora_unet_blocks_0_qkv.alpha", floats({}, {0.5f})});
  one.push_back({"diffusion_model.blocks.0.mod.diff_b", wave({8}, 4)});
  write_file(lora, one);
  std::vector<Given> two = pair("transformer.t.0.attn.to_v", ".lora_A.weight", ".lora_B.weight", 4, 2, 5);
  for (const Given& t : pair("transformer.t.0.norm1.linear", ".lora_A.weight", ".lora_B.weight", 8, 2, 9))
    two.push_back(t);
  for (const Given& t : pair("text_encoder.layers.0.fc1", ".lora_A.weight", ".lora_B.weight", 8, 2, 13))
    two.push_back(t);
  write_file(second, two);
  write_file(third, {{"diffusion_model.blocks.0.mod.lora_down.weight", wave({1, 4}, 2)},
                     {"diffusion_model.blocks.0.mod.lora_up.weight", wave({8, 1}, 3)},
                     {"diffusion_model.blocks.0.mod.diff_b", wave({8}, 6)},
                     {"diffusion_model.res.1.norm.w_norm", wave({6}, 7)}});
  const std::vector<LoraInput> inputs{{lora, 0.8}, {second, -0.5}, {third, 1}};
  const Checkpoint base_model = open();
  const MergedLora merged = merge_loras(spec, base_model, inputs, {}, Unmatched::refuse);
  write_lora(out, merged.modules, spec, "comfyui", DType::f32, {});
  for (const char* const weight : {"blocks.0.qkv.weight", "blocks.0.mod.weight", "blocks.0.mod.bias",
                                   "res.1.norm.weight", "clip:text_model.layers.0.fc1.weight"}) {
    SCOPED_TRACE(weight);
    Matrix want = 0.0 * change(lora, weight);
    for (const LoraInput& input : inputs) want = want + input.strength * change(input.path, weight);
    expect_close(change(out, weight), want, float32);
  }
  for (const ModuleLine& line : merged.lines) {
    if (line.name == "blocks.0.qkv") {
      EXPECT_EQ(line.after, 3) << "the sum of the ranks";
    }
    EXPECT_EQ(line.kept, 1);
  }

  const MergedLora cut = merge_loras(spec, base_model, inputs, {.rank = 1}, Unmatched::refuse);
  write_lora(out, cut.modules, spec, "kohya", DType::f32, {});
  for (const ModuleLine& line : cut.lines) {
    SCOPED_TRACE(line.name);
    const std::string weight = line.name + ".weight";
    Matrix want = 0.0 * change(lora, weight);
    for (const LoraInput& input : inputs) want = want + input.strength * change(input.path, weight);
    EXPECT_EQ(line.after, 1);
    EXPECT_NEAR(line.norm * line.norm, square(want), 1e-5 * square(want));
    EXPECT_NEAR(square(change(out, weight) + -1.0 * want), (1 - line.kept) * square(want), 1e-5 * square(want));
  }
}

// All kinds of adapters on one layer, as one plain LoRA.
TEST_F(LoraTools, MergeOfEveryKind) {
  std::map<std::string, std::vector<LoraInput>> files;  // by weight
  std::map<std::string, Matrix> want;
  int number = 0;
  for (const Algebra& algebra : algebras()) {
    const std::string weight = std::string(algebra.weight) + ".weight";
    const double strength = 0.25 * ++number;
    files[weight].push_back({write(algebra, fmt::format("{}.safetensors", number)), strength});
    const auto found = want.find(weight);
    want[weight] = found == want.end() ? strength * algebra.delta : found->second + strength * algebra.delta;
  }
  const Checkpoint base_model = open();
  for (const auto& [weight, inputs] : files) {
    SCOPED_TRACE(weight);
    const MergedLora merged = merge_loras(spec, base_model, inputs, {}, Unmatched::refuse);
    const fs::path out = dir / "out.safetensors";
    write_lora(out, merged.modules, spec, "kohya", DType::f32, {});
    expect_close(change(out, weight), want.at(weight), float32);
    EXPECT_EQ(open_lora(out).entries.at(0).kind, LoraKind::lora);
  }
}

// What DoRA makes depends on the weight: it is taken from what the weight becomes.
TEST_F(LoraTools, MergeOfDora) {
  const std::string x = "lora_unet_blocks_0_proj";
  std::vector<Given> tensors = pair(x, ".lora_down.weight", ".lora_up.weight", 4, 2, 1);
  HostTensor magnitude = wave({1, 4}, 3);
  for (float& v : magnitude.as<float>()) v += 2;
  tensors.push_back({x + ".dora_scale", magnitude});
  write_file(lora, tensors);
  const Checkpoint base_model = open();
  const std::vector<LoraInput> inputs{{lora, 0.7}};
  EXPECT_THAT(error_of([&] { merge_loras(spec, base_model, inputs, {}, Unmatched::refuse); }),
              AllOf(HasSubstr("blocks.0.proj"), HasSubstr("--rank")));
  const MergedLora merged = merge_loras(spec, base_model, inputs, {.rank = 4}, Unmatched::refuse);
  write_lora(dir / "out.safetensors", merged.modules, spec, "kohya", DType::f32, {});
  Checkpoint with_dora = open(), with_pair = open();
  with_dora.use(with_dora.merge_of(inputs));
  with_pair.use(with_pair.merge_of({{dir / "out.safetensors", 1}}));
  expect_close(matrix(with_pair.read_f32("blocks.0.proj.weight")), matrix(with_dora.read_f32("blocks.0.proj.weight")),
               float32);
}

TEST_F(LoraTools, MergeNamesWhatMatchesNothing) {
  std::vector<Given> tensors = pair("lora_unet_blocks_0_proj", ".lora_down.weight", ".lora_up.weight", 4, 2, 1);
  for (const Given& t : pair("lora_unet_other", ".lora_down.weight", ".lora_up.weight", 4, 2, 1)) tensors.push_back(t);
  for (const Given& t : pair("lora_te1_text_model_layers_0_fc1", ".lora_down.weight", ".lora_up.weight", 8, 2, 1))
    tensors.push_back(t);
  write_file(lora, tensors);
  const Checkpoint alone(spec, {{"name_or_path", base}});
  EXPECT_THAT(error_of([&] {
                merge_loras(spec, alone, {{lora, 1}}, {}, Unmatched::refuse);
              }),
              AllOf(HasSubstr("lora_unet_other: no layer of this model"),
                    HasSubstr("lora_te1_text_model_layers_0_fc1: it is for text encoder clip, which is not there")));
  // What is left out is said once.
  std::ostringstream log;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log);
  const auto level = spdlog::get_level();
  spdlog::set_level(spdlog::level::info);
  spdlog::default_logger()->sinks().push_back(sink);
  const MergedLora merged = merge_loras(spec, alone, {{lora, 1}}, {}, Unmatched::leave_out);
  std::erase(spdlog::default_logger()->sinks(), sink);
  spdlog::set_level(level);
  EXPECT_EQ(merged.modules.size(), 1u);
  const std::string said = log.str();
  EXPECT_THAT(said, HasSubstr("1 modules match no layer of this model and are left out"));
  EXPECT_EQ(said.find("match no layer"), said.rfind("match no layer")) << said;
}

TEST_F(LoraTools, DamagedInputIsRefused) {
  std::vector<Given> tensors = pair("lora_unet_blocks_0_proj", ".lora_down.weight", ".lora_up.weight", 4, 2, 1);
  tensors[1].tensor.as<float>()[2] = NAN;
  write_file(lora, tensors);
  EXPECT_THAT(error_of([&] { open_lora(lora); }),
              AllOf(HasSubstr("1 of 8 values"), HasSubstr("lora_unet_blocks_0_proj.lora_up.weight")));
  const std::string bytes = get(lora);
  put(lora, bytes.substr(0, bytes.size() - 3));
  EXPECT_THAT(error_of([&] { open_lora(lora); }), HasSubstr("cut short"));
  write_file(lora, {{"a.weight", wave({2, 2}, 1)}});
  EXPECT_THAT(error_of([&] { open_lora(lora); }), HasSubstr("not a LoRA"));
  write_file(lora,
             {tensors[0], {"lora_unet_blocks_0_proj.lora_up.weight", wave({4, 2}, 1)}, {"x.oft_blocks", wave({2}, 1)}});
  EXPECT_THAT(error_of([&] { open_lora(lora); }), AllOf(HasSubstr("x.oft_blocks"), HasSubstr("OFT")));
}

// A disk that is full, and a write that stops, leave what was there.
TEST_F(LoraTools, AFailedWriteLeavesNothing) {
  write_file(lora, pair("lora_unet_blocks_0_proj", ".lora_down.weight", ".lora_up.weight", 4, 2, 1));
  const ResizedLora made = resize_lora(open_lora(lora), {.rank = 1}, {});
  for (const std::string call : {"fallocate", "write", "fsync", "rename"}) {
    SCOPED_TRACE(call);
    set_fault_hook([&](const char* now) { return call == now ? ENOSPC : 0; });
    const std::string error = error_of([&] { save(made); });
    set_fault_hook({});
    EXPECT_THAT(error, HasSubstr("out.safetensors"));
    EXPECT_FALSE(fs::exists(dir / "out.safetensors"));
    for (const auto& entry : fs::directory_iterator(dir.path()))
      EXPECT_EQ(entry.path().extension(), ".safetensors") << entry.path();
  }
}

// ---- extract

TEST_F(LoraTools, ExtractFindsWhatWasAdded) {
  const fs::path tuned = dir / "tuned.safetensors", out = dir / "out.safetensors";
  std::vector<Given> tensors = base_tensors();
  std::map<std::string, Matrix> want;
  for (Given& t : tensors) {
    if (t.name != "blocks.0.qkv.weight" && t.name != "res.1.conv.weight" && t.name != "blocks.0.mod.bias") continue;
    const int64_t rows = t.tensor.desc.shape[0], columns = t.tensor.desc.shape.with(0, 1).numel();
    const Matrix before = matrix(t.tensor);
    const Matrix delta =
        columns == 1 ? matrix(wave({rows, 1}, 3)) : matrix(wave({rows, 2}, 1)) * matrix(wave({2, columns}, 2));
    for (size_t i = 0; i < delta.values.size(); ++i) t.tensor.as<float>()[i] += static_cast<float>(delta.values[i]);
    want[t.name] = matrix(t.tensor) + -1.0 * before;
  }
  write_file(tuned, tensors);
  const Checkpoint one = open(), other(spec, {{"name_or_path", tuned}});
  const ExtractedLora found = extract_lora(spec, one, other, {.rank = 2});
  ASSERT_EQ(found.modules.size(), 2u);
  EXPECT_EQ(found.small, 1) << "the bias";
  const double all =
      square(want["blocks.0.qkv.weight"]) + square(want["res.1.conv.weight"]) + square(want["blocks.0.mod.bias"]);
  EXPECT_NEAR(found.small_share, square(want["blocks.0.mod.bias"]) / all, 1e-6);
  write_lora(out, found.modules, spec, "kohya", DType::f32, {});
  // The sum was rounded to float32 beside numbers of the same size: 6e-8 of each.
  for (const char* const weight : {"blocks.0.qkv.weight", "res.1.conv.weight"})
    expect_close(change(out, weight), want.at(weight), 2 * float32);

  // With the bias as it differs, in float32.
  write_lora(out, extract_lora(spec, one, other, {.rank = 2}, true).modules, spec, "comfyui", DType::f32, {});
  for (const auto& [weight, delta] : want) expect_close(change(out, weight), delta, 2 * float32);

  const ExtractedLora less = extract_lora(spec, one, other, {.energy = 0.5});
  write_lora(out, less.modules, spec, "kohya", DType::f32, {});
  for (const ModuleLine& line : less.lines) {
    EXPECT_EQ(line.after, 1);
    EXPECT_GE(line.kept, 0.5);
    const Matrix& delta = want.at(line.name + ".weight");
    EXPECT_NEAR(square(change(out, line.name + ".weight") + -1.0 * delta), (1 - line.kept) * square(delta),
                1e-6 * square(delta));
  }
}

TEST_F(LoraTools, ExtractRefusesAnotherModel) {
  const fs::path tuned = dir / "tuned.safetensors";
  const auto error = [&](const std::vector<Given>& tensors) {
    write_file(tuned, tensors);
    const Checkpoint one = open(), other(spec, {{"name_or_path", tuned}});
    return error_of([&] { extract_lora(spec, one, other, {.rank = 2}); });
  };
  std::vector<Given> tensors = base_tensors();
  EXPECT_THAT(error(tensors), HasSubstr("nothing to extract"));
  tensors[2].tensor = wave({5, 4}, 1);
  EXPECT_THAT(error(tensors), AllOf(HasSubstr("blocks.0.proj.weight"), HasSubstr("[4, 4]"), HasSubstr("[5, 4]")));
  tensors = base_tensors();
  tensors.pop_back();
  EXPECT_THAT(error(tensors), HasSubstr("res.1.norm.weight: only the base has it"));
  tensors = base_tensors();
  tensors[2].tensor.as<float>()[1] = NAN;
  EXPECT_THAT(error(tensors), AllOf(HasSubstr("blocks.0.proj.weight"), HasSubstr("NaN")));
  write_file(tuned, base_tensors());
  const Checkpoint encoder(spec, {{"clip_path", clip}}), other(spec, {{"name_or_path", tuned}});
  EXPECT_THAT(error_of([&] { extract_lora(spec, other, encoder, {.rank = 2}); }), HasSubstr("no weights in common"));
}

}  // namespace
}  // namespace lh::lora_tools_test
