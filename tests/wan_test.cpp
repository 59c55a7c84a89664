// Wan beyond its golden cases: every layout of files, refusals, prompts, the experts of 2.2, sizes, and the published
// models by their shapes.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <set>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "data/further_images.h"
#include "data/read_cut.h"
#include "diffusion/timestep_law.h"
#include "encode/check_model.h"
#include "encode/image_inputs.h"
#include "encode/text_encoding.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "run/program.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/image_files.h"
#include "support/layouts.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/wan_shapes.h"
#include "support/wrong_models.h"

namespace lh::test::wan_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "wan";
constexpr int64_t words = 32128;
const fs::path tokenizer = fs::path(source_dir()) / "share" / "tokenizers" / "t5";

// A whole small model whose parts fit each other: native tensors of each component.
using Components = std::map<std::string, std::vector<Given>>;
Components components_of(const WanDit& denoiser, const std::string& autoencoder) {
  Shapes text, vision;
  add_umt5(text, "", denoiser.text, 2, words);
  Components all{{"denoiser", filled(denoiser.shapes())}, {"vae", golden_weights(autoencoder)}, {"umt5", filled(text)}};
  if (denoiser.image == 0) return all;
  add_clip_vision(vision, "", denoiser.image, 3, 56);
  all["clip_vision"] = filled(vision);
  return all;
}
const Components& components() {
  static const Components all = components_of(small_wan, "vae_qwen_image_encode");
  return all;
}
const Components& ti2v() {
  static const Components all = components_of(small_ti2v, "vae_wan22_encode");
  return all;
}

const Components& i2v_2_1() {
  static const Components all = components_of(small_wan21_i2v, "vae_qwen_image_encode");
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder, const Components& all = components()) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : all) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const auto& [name, tensors] : all)
    if (name != "denoiser") config.given[name + "_path"] = {folder / (name + ".safetensors")};
  return config;
}

ModelConfig with_variant(ModelConfig config, const char* variant) {
  config.given["variant"] = {variant};
  return config;
}

const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

// ---- layouts

const Change as_fp8 = [](const HostTensor& t) { return t.desc.shape.rank() == 2 ? as_type(t, DType::f8_e4m3) : t; };

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser, const Change& change,
                       const Components& parts = components()) {
  const std::map<std::string, std::string> prefixes = {{"denoiser", denoiser},
                                                       {"vae", "vae."},
                                                       {"umt5", "text_encoders.umt5xxl.transformer."},
                                                       {"clip_vision", "clip_vision."}};
  std::vector<Given> all;
  for (const auto& [name, tensors] : parts)
    for (const Given& t : tensors) all.push_back({prefixes.at(name) + t.name, change(t.tensor)});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change,
                      const Components& all = components()) {
  write_directory(folder, spec_of(plugin), all, {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "WanPipeline", "boundary_ratio": null})");
  return single(folder);
}

// One component's file with the names that the key map reads; `last`: those of the rules that stand last.
ModelConfig with_other_names(const fs::path& folder, const std::string& component, bool last) {
  ModelConfig config = write_separate(folder);
  ComponentSpec spec = *spec_of(plugin).component(component);
  if (last) std::ranges::reverse(spec.diffusers);
  std::vector<Given> tensors;
  for (const Given& t : components().at(component))
    for (const Given& part : in_diffusers(spec, t, components().at(component))) tensors.push_back(part);
  write_file(folder / (component + ".safetensors"), tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_is); }},
    {"all_in_one_in_fp8", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_fp8); }, as_fp8},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"denoiser_with_the_names_of_diffusers", [](const fs::path& p) { return with_other_names(p, "denoiser", false); }},
    {"autoencoder_with_the_names_of_diffusers", [](const fs::path& p) { return with_other_names(p, "vae", false); }},
    {"encoder_with_its_original_names", [](const fs::path& p) { return with_other_names(p, "umt5", true); }},
    {"encoder_with_its_vocabulary",
     [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors = components().at("umt5");
       tensors.push_back({"spiece_model", counting({40})});
       write_file(p / "umt5.safetensors", tensors);
       return config;
     }},
    {"folders_of_an_expert_apart",
     [](const fs::path& p) {
       ModelConfig config = directory(p, "", as_is);
       fs::rename(p / "transformer", p / "transformer_2");
       config.name_or_path = p / "transformer_2";
       config.given["vae_path"] = {p / "vae"};
       config.given["umt5_path"] = {p / "text_encoder"};
       return config;
     }},
};

class WanLayouts : public testing::TestWithParam<Layout> {};

TEST_P(WanLayouts, OpenAsTheSameModel) {
  expect_same_model(
      plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
      {{"denoiser", {{"batch", 1}, {"time", 1}, {"height", 8}, {"width", 12}, {"text_length", 40}}},
       {"conditioner", {{"batch", 2}, {"umt5.length", 40}}},
       {"vae.encode", {{"batch", 1}, {"time", 5}, {"height", 64}, {"width", 48}}},
       {"vae.decode", {{"batch", 1}, {"time", 2}, {"height", 8}, {"width", 6}}}},
      "wan2.1");
}

INSTANTIATE_TEST_SUITE_P(All, WanLayouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not Wan, or not whole

void set(Shapes& shapes, const char* name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"width",
     [](Shapes& s) {
       set(s, "patch_embedding.weight", {200, 16, 1, 2, 2});
     },
     "patch_embedding.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"other_latents",
     [](Shapes& s) {
       set(s, "patch_embedding.weight", {256, 12, 1, 2, 2});
       set(s, "head.head.weight", {48, 256});
       set(s, "head.head.bias", {48});
     },
     "patch_embedding.weight: expected 16 columns (channels of the latents of wan2.1), found 12"},
    {"norm_of_heads", [](Shapes& s) { set(s, "blocks.1.cross_attn.norm_q.weight", {128}); },
     "blocks.1.cross_attn.norm_q.weight: expected shape [256], found [128]"},
    {"no_norm3", [](Shapes& s) { s.erase("blocks.1.norm3.bias"); }, "missing tensor blocks.1.norm3.bias"},
    {"modulation",
     [](Shapes& s) {
       set(s, "blocks.0.modulation", {1, 3, 256});
     },
     "blocks.0.modulation: expected shape [1, 6, 256], found [1, 3, 256]"},
    {"text_width", [](Shapes& s) { add_umt5(s, "umt5:", 64, 2, words); },
     "text_embedding.0.weight takes 96 columns, but umt5 gives 64: the files do not belong together"},
    {"a_table_less",
     [](Shapes& s) {
       add_umt5(s, "umt5:", 96, 3, words);
       s.erase("umt5:encoder.block.2.layer.0.SelfAttention.relative_attention_bias.weight");
     },
     "missing tensor umt5:encoder.block.2.layer.0.SelfAttention.relative_attention_bias.weight"},
    {"autoencoder_of_2_2",
     [](Shapes& s) {
       set(s, "vae:encoder.conv1.weight", {8, 12, 3, 3, 3});
     },
     "vae:encoder.conv1.weight: expected shape [*, 3, 3, 3, 3], found [8, 12, 3, 3, 3]"},
};

TEST(Wan, WrongTensorsAreNamed) { expect_refused(plugin, small_wan.shapes(), wrongs); }

TEST(Wan, ItsAutoencoderResamplesTime) {
  const TempDir dir;
  const ModelConfig config = write_separate(dir.path());
  const auto without = [&](const std::string& missing, const std::string& further) {
    std::vector<Given> tensors;
    for (const Given& t : components().at("vae"))
      if (t.name != missing) tensors.push_back(t);
    if (!further.empty()) tensors.push_back({further, counting({64, 64, 3, 1, 1})});
    write_file(dir / "vae.safetensors", tensors);
    return error_of([&] { const Model model(built_plugins(), config, ""); });
  };
  for (const char* missing : {"encoder.downsamples.5.time_conv.weight", "encoder.downsamples.8.time_conv.weight",
                              "decoder.upsamples.3.time_conv.weight", "decoder.upsamples.7.time_conv.weight"})
    EXPECT_THAT(without(missing, ""), HasSubstr(std::string("missing tensor vae:") + missing));
  EXPECT_THAT(without("", "encoder.downsamples.2.time_conv.weight"), HasSubstr("time is resampled twice"));
}

const WrongModel relatives[] = {
    {"first_and_last_frames",
     [](Shapes& s) {
       set(s, "img_emb.emb_pos", {1, 514, 160});
     },
     "this is Wan 2.1 of first and last frames, FLF2V (img_emb.emb_pos*)"},
    {"vace", [](Shapes& s) { add_linear(s, "vace_blocks.0.after_proj", 8, 8); }, "this is Wan VACE"},
    {"fun_control",
     [](Shapes& s) {
       set(s, "patch_embedding.weight", {256, 48, 1, 2, 2});
     },
     "this is a Wan model that is shown further pictures, like Fun Control"},
    {"fun_camera", [](Shapes& s) { add_linear(s, "control_adapter.conv", 8, 8); }, "this is Wan Fun Camera"},
    {"s2v", [](Shapes& s) { add_linear(s, "casual_audio_encoder.encoder.final_linear", 8, 8); }, "this is Wan S2V"},
    {"animate", [](Shapes& s) { add_linear(s, "face_adapter.fuser_blocks.0.linear2", 8, 8); }, "this is Wan Animate"},
};

TEST(Wan, RelativesAreRefusedByName) { expect_files_refused({"", plugin}, small_wan.shapes(), relatives); }

// T5 has one table of positions for all blocks, and other words.
TEST(Wan, T5IsNotItsEncoder) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  Shapes t5;
  add_t5(t5, "", small_wan.text, 2, words);
  write_file(dir / "t5xxl.safetensors", filled(t5));
  config.given["umt5_path"] = {dir / "t5xxl.safetensors"};
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              testing::AllOf(HasSubstr("model.umt5_path"), HasSubstr("encoder.block.1.layer.0.SelfAttention")));
}

// ---- the experts of 2.2

TEST(Wan, AFolderOfTwoExpertsSaysWhichItHas) {
  const TempDir dir;
  ModelConfig config = directory(dir / "model", "", as_is);
  put(dir / "model" / "model_index.json", R"({"_class_name": "WanPipeline", "boundary_ratio": 0.875})");
  EXPECT_EQ(Model(built_plugins(), config, "").recipe().variant, "wan2.2-high-noise");
  EXPECT_EQ(Model(built_plugins(), with_variant(config, "wan2.2-low-noise"), "").recipe().variant, "wan2.2-low-noise");
  fs::copy(dir / "model/transformer", dir / "model/transformer_2");
  for (const auto& [variant, folder] : {std::pair{"wan2.2-high-noise", "transformer"},
                                        {"wan2.2", "transformer"},
                                        {"wan2.2-low-noise", "transformer_2"}}) {
    const Model model(built_plugins(), with_variant(config, variant), "");
    EXPECT_EQ(model.checkpoint().file_of("patch_embedding.weight").parent_path(), dir / "model" / folder) << variant;
    for (const char* part : {"vae", "umt5"}) EXPECT_TRUE(model.checkpoint().has(part)) << variant;
  }
}

// Those that are shown a first frame have 36 channels, which say nothing of which expert it is.
TEST(Wan, ExpertsOfImageToVideo) {
  const TempDir dir;
  write_file(dir / "i2v.safetensors", filled(image_to_video(small_wan).shapes()));
  const ModelConfig config = single(dir / "i2v.safetensors");
  const auto open = [&](const ModelConfig& which) { return Model(built_plugins(), which, ""); };
  EXPECT_THAT(error_of([&] { open(config); }),
              HasSubstr("model.variant: missing: these are the weights of an expert of Wan 2.2's image-to-video: "
                        "expected wan2.2-high-noise or wan2.2-low-noise"));
  EXPECT_THAT(error_of([&] { open(with_variant(config, "wan2.1")); }), HasSubstr("model.variant: wan2.1: these are"));
  for (const std::string which : {"high", "low"}) {
    const Model model = open(with_variant(config, ("wan2.2-" + which + "-noise").c_str()));
    EXPECT_EQ(model.recipe().variant, "wan2.2-i2v-" + which + "-noise");
    EXPECT_EQ(model.recipe().denoisers.at(0).above, 0.9);
    EXPECT_TRUE(model.recipe().image_keys().needed.empty());
    EXPECT_EQ(model.recipe().image_keys_of_samples().needed, std::set<std::string>{"control"});
  }
}

TEST(Wan, ExpertsAreTrainedOnTheirLevels) {
  const TempDir dir;
  const ModelConfig config = write_separate(dir.path());
  struct Row {
    const char* variant;
    double above, up_to, guidance;
  };
  for (const Row& row :
       {Row{"wan2.1", 0, 1, 5}, Row{"wan2.2-high-noise", 0.875, 1, 4}, Row{"wan2.2-low-noise", 0, 0.875, 3}}) {
    ModelConfig given = with_variant(config, row.variant);
    const Model model(built_plugins(), given, "");
    EXPECT_EQ(model.recipe().sampling.guidance, row.guidance);
    EXPECT_NO_THROW(check_model(model, DType::f32)) << row.variant;
    const TimestepLaw law({}, model.recipe());
    double least = 1, most = 0;
    for (uint64_t step = 0; step < 500; ++step) {
      Random random(7, Purpose::timestep, step, 0);
      const double t = law.draw(random, 256);
      least = std::min(least, t);
      most = std::max(most, t);
    }
    EXPECT_GT(least, row.above) << row.variant;
    EXPECT_LE(most, row.up_to) << row.variant;
    EXPECT_GT(most - least, 0.8 * (row.up_to - row.above)) << row.variant;
  }
}

// ---- image-to-video of 2.1, which sees its picture by CLIP

// The names of the file that Wan was published with, whose q, k and v are one tensor, and which has a text encoder
// beside the tower; or those of transformers 5.
std::vector<Given> clip_with_other_names(const std::vector<Given>& tensors, bool original) {
  constexpr std::string_view root = "vision_model.", layers = "encoder.layers.";
  const std::map<std::string, std::string> names = {
      {"embeddings.class_embedding", "visual.cls_embedding"},
      {"embeddings.patch_embedding.weight", "visual.patch_embedding.weight"},
      {"embeddings.position_embedding.weight", "visual.pos_embedding"},
      {"pre_layrnorm", "visual.pre_norm"},
      {"post_layernorm", "visual.post_norm"},
      {"layer_norm1", "norm1"},
      {"layer_norm2", "norm2"},
      {"self_attn.out_proj", "attn.proj"},
      {"mlp.fc1", "mlp.0"},
      {"mlp.fc2", "mlp.2"}};
  std::vector<Given> out;
  for (const Given& t : tensors) {
    std::string name = t.name.substr(root.size());
    if (!original) {
      out.push_back({name, t.tensor});
      continue;
    }
    std::string in_layer = name;
    std::string before;
    if (name.starts_with(layers)) {
      const size_t end = name.find('.', layers.size());
      before = "visual.transformer." + name.substr(layers.size(), end + 1 - layers.size());
      in_layer = name.substr(end + 1);
    }
    if (in_layer.starts_with("self_attn.k_proj") || in_layer.starts_with("self_attn.v_proj")) continue;
    if (in_layer.starts_with("self_attn.q_proj")) {
      HostTensor qkv = t.tensor;
      for (const char* part : {"k_proj", "v_proj"}) {
        std::string other = t.name;
        other.replace(other.find("q_proj"), 6, part);
        const HostTensor& more = std::ranges::find(tensors, other, &Given::name)->tensor;
        qkv.data.insert(qkv.data.end(), more.data.begin(), more.data.end());
      }
      qkv.desc.shape = qkv.desc.shape.with(0, 3 * qkv.desc.shape[0]);
      out.push_back({before + "attn.to_qkv" + in_layer.substr(in_layer.rfind('.')), qkv});
      continue;
    }
    const auto known = std::ranges::find_if(names, [&](const auto& n) { return in_layer.starts_with(n.first); });
    HostTensor tensor = t.tensor;
    if (known->second == "visual.cls_embedding") tensor.desc.shape = {1, 1, tensor.desc.shape[0]};
    if (known->second == "visual.pos_embedding") tensor.desc.shape = {1, tensor.desc.shape[0], tensor.desc.shape[1]};
    out.push_back({before + known->second + in_layer.substr(known->first.size()), tensor});
  }
  if (original)
    for (const char* other : {"visual.head", "textual.token_embedding.weight", "log_scale"})
      out.push_back({other, counting({2, 2})});
  return out;
}

TEST(Wan, ImageToVideoOf21InEveryLayout) {
  const TempDir dir;
  const Model want(built_plugins(), write_separate(dir / "separate", i2v_2_1()), "");
  EXPECT_EQ(want.recipe().variant, "wan2.1-i2v");
  EXPECT_TRUE(want.recipe().image_keys().needed.empty());
  EXPECT_EQ(want.recipe().image_keys_of_samples().needed, std::set<std::string>{"control"});
  fs::create_directories(dir / "folder");
  const ModelConfig folder = directory(dir / "folder", "", as_is, i2v_2_1());
  fs::create_directories(dir / "one");
  const ModelConfig one = all_in_one(dir / "one", "model.diffusion_model.", as_is, i2v_2_1());
  ModelConfig original = write_separate(dir / "separate", i2v_2_1()), bare = original;
  for (ModelConfig* config : {&original, &bare}) {
    const fs::path file = dir / (config == &original ? "original.safetensors" : "bare.safetensors");
    write_file(file, clip_with_other_names(i2v_2_1().at("clip_vision"), config == &original));
    config->given["clip_vision_path"] = {file};
  }
  for (const ModelConfig& config : {with_variant(folder, "wan2.1"), one, original, bare}) {
    const Model got(built_plugins(), config, "");
    EXPECT_EQ(got.recipe().variant, "wan2.1-i2v");
    expect_same(got.checkpoint(), want.checkpoint());
  }
  EXPECT_NO_THROW(check_model(want, DType::f32));
}

const WrongModel wrong_i2v[] = {
    {"no_k_img", [](Shapes& s) { s.erase("blocks.1.cross_attn.k_img.weight"); },
     "missing tensor blocks.1.cross_attn.k_img.weight"},
    {"norm_of_heads", [](Shapes& s) { set(s, "blocks.0.cross_attn.norm_k_img.weight", {128}); },
     "blocks.0.cross_attn.norm_k_img.weight: expected shape [256], found [128]"},
    {"no_norm", [](Shapes& s) { s.erase("img_emb.proj.4.bias"); }, "missing tensor img_emb.proj.4.bias"},
    {"not_shown",
     [](Shapes& s) {
       set(s, "patch_embedding.weight", {256, 16, 1, 2, 2});
     },
     "patch_embedding.weight: expected shape [256, 36, 1, 2, 2], found [256, 16, 1, 2, 2]"},
    {"clip_width", [](Shapes& s) { add_clip_vision(s, "clip_vision:", 80, 2, 56); },
     "img_emb.proj.1.weight takes 160 columns, but clip_vision gives 80: the files do not belong together"},
    {"clip_heads", [](Shapes& s) { add_clip_vision(s, "clip_vision:", 100, 2, 56); },
     "clip_vision:vision_model.embeddings.patch_embedding.weight: expected a multiple of 80 rows (heads of 80), found "
     "100"},
    {"clip_of_one_layer", [](Shapes& s) { add_clip_vision(s, "clip_vision:", 160, 1, 56); },
     "missing tensor clip_vision:vision_model.encoder.layers.1.layer_norm1.weight"},
    {"clip_without_q",
     [](Shapes& s) {
       add_clip_vision(s, "clip_vision:", 160, 2, 56);
       s.erase("clip_vision:vision_model.encoder.layers.0.self_attn.q_proj.weight");
     },
     "missing tensor clip_vision:vision_model.encoder.layers.0.self_attn.q_proj.weight"},
};

TEST(Wan, WrongTensorsOfImageToVideoAreNamed) { expect_refused(plugin, small_wan21_i2v.shapes(), wrong_i2v); }

TEST(Wan, ImageToVideoOf21IsToldByItsWeights) {
  const TempDir dir;
  const ModelConfig config = write_separate(dir.path(), i2v_2_1());
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), with_variant(config, "wan2.2-high-noise"), ""); }),
              HasSubstr("model.variant: wan2.2-high-noise: these are the weights of Wan 2.1's image-to-video: expected "
                        "wan2.1"));
  ModelConfig without = config;
  without.given.erase("clip_vision_path");
  without.given["tokenizer_path"] = {tokenizer};
  const Model model(built_plugins(), without, "");
  Device device(tested_device());
  EXPECT_THAT(error_of([&] { TextEncoding(device, model, DType::f32, {}).most_lengths(); }),
              HasSubstr("model.clip_vision_path: image encoder 'clip_vision' is needed, but no file was given for it"));
  EXPECT_EQ(Model(built_plugins(), write_separate(dir / "text"), "").recipe().variant, "wan2.1");
}

// ---- TI2V 5B, of the autoencoder of 2.2

// The names of diffusers for its levels are some of those for 2.1's, beside others.
TEST(Wan, Ti2vIsToldByItsLatentsInEveryLayout) {
  const TempDir dir;
  const Model want(built_plugins(), write_separate(dir / "separate", ti2v()), "");
  EXPECT_EQ(want.recipe().variant, "wan2.2-ti2v-5b");
  ModelConfig renamed = write_separate(dir / "renamed", ti2v());
  fs::create_directories(dir / "folder");
  const ModelConfig folder = directory(dir / "folder", "", as_is, ti2v());
  fs::copy_file(dir / "folder/vae/diffusion_pytorch_model.safetensors", dir / "renamed/vae.safetensors",
                fs::copy_options::overwrite_existing);
  for (const ModelConfig& config : {folder, renamed, with_variant(folder, "wan2.2-ti2v-5b")}) {
    const Model got(built_plugins(), config, "");
    EXPECT_EQ(got.recipe().variant, "wan2.2-ti2v-5b");
    expect_same(got.checkpoint(), want.checkpoint());
    EXPECT_NO_THROW(check_model(got, DType::f32));
  }
}

// Samples may begin with a picture, and clips of datasets that say so with their own frame: its latents alone. In runs
// without either the model is the one that makes videos of text.
TEST(Wan, Ti2vMayGoOnFromAPicture) {
  const TempDir dir;
  const ModelConfig files = write_separate(dir / "five", ti2v());
  const Model model(built_plugins(), files, "", {own_first_frame_key}),
      of_samples(built_plugins(), files, "", {"control"}), of_text(built_plugins(), files, "");
  const Recipe& recipe = model.recipe();
  for (const Model* each : {&model, &of_samples, &of_text}) {
    EXPECT_THAT(each->recipe().image_keys_of_samples().needed, testing::IsEmpty());
    EXPECT_THAT(each->recipe().image_keys_of_samples().possible, testing::ElementsAre("control"));
    EXPECT_THAT(each->recipe().image_keys().possible, testing::IsEmpty()) << "of datasets";
    EXPECT_EQ(each->recipe().starts_clips(), each != &of_text);
    EXPECT_EQ(each->recipe().inputs.contains("given"), each != &of_text);
    EXPECT_NO_THROW(check_model(*each, DType::f32));
  }
  Sizes sizes{{"batch", 1}, {"time", 1}, {"height", 2}, {"width", 4}, {"text_length", 40}};
  EXPECT_FALSE(model.build("denoiser", sizes, DType::f32).inputs.contains("first_frame")) << "a still";
  sizes["time"] = 2;
  const Graph denoiser = model.build("denoiser", sizes, DType::f32);
  EXPECT_EQ(denoiser.desc(denoiser.inputs.at("first_frame")).shape, (Shape{1, 1, 2, 4, 48}));
  EXPECT_FALSE(of_text.build("denoiser", sizes, DType::f32).inputs.contains("first_frame"));

  write_png(dir / "start.png", test_picture(64, 32));
  const ImageFile start = open_image(dir / "start.png");
  Device device(tested_device());
  LatentEncoding encoding({device, model, DType::f32}, int64_t{1} << 40, {});
  ImageInputs images(recipe, encoding);
  const auto made = [&](const ImageFiles& files, const ImageCut& own) {
    encoding.prepare(images.to_encode(files, own));
    return images.make(files, own, Random(0, Purpose::inpaint_posterior, 0, 0));
  };
  const Bucket clip{64, 32, 5};
  const NamedTensors given = made({{"control", start}}, {.file = {}, .bucket = clip}),
                     own = made({}, {.file = start, .bucket = clip, .goes_on = true}),
                     none = made({}, {.file = {}, .bucket = clip}),
                     of_words = made({}, {.file = start, .bucket = clip});
  EXPECT_EQ(given.at("first_frame").desc.shape, (Shape{1, 1, 2, 4, 48}));
  EXPECT_EQ(given.at("first_frame").data, own.at("first_frame").data);
  EXPECT_EQ(given.at("first_frame").data, encoding.mean({start, {64, 32}}).data);
  EXPECT_EQ(given.at("given").as<float>()[0], 1);
  EXPECT_EQ(own.at("given").as<float>()[0], 1);
  for (const NamedTensors* each : {&none, &of_words}) {
    EXPECT_EQ(each->at("given").as<float>()[0], 0);
    EXPECT_EQ(each->at("first_frame").desc, given.at("first_frame").desc);
  }
}

TEST(Wan, Ti2vHasChannelsAndAnAutoencoderOfItsOwn) {
  const TempDir dir;
  const ModelConfig small = write_separate(dir / "small"), five = write_separate(dir / "five", ti2v());
  const auto error = [](const ModelConfig& config) {
    return error_of([&] { const Model model(built_plugins(), config, ""); });
  };
  EXPECT_THAT(error(with_variant(five, "wan2.1")),
              HasSubstr("expected 16 columns (channels of the latents of wan2.1)"));
  EXPECT_THAT(error(with_variant(small, "wan2.2-ti2v-5b")),
              HasSubstr("expected 48 columns (channels of the latents of wan2.2-ti2v-5b), found 16"));
  ModelConfig crossed = five;
  crossed.given["vae_path"] = small.given.at("vae_path");
  EXPECT_THAT(error(crossed), HasSubstr("this is the autoencoder of Wan 2.1, wan2.2-ti2v-5b has another one"));
  crossed = small;
  crossed.given["vae_path"] = five.given.at("vae_path");
  EXPECT_THAT(error(crossed), HasSubstr("this is the autoencoder of Wan 2.2 TI2V 5B, wan2.1 has another one"));
  const auto without = [&](const std::string& missing) {
    std::vector<Given> tensors;
    for (const Given& t : ti2v().at("vae"))
      if (!t.name.starts_with(missing)) tensors.push_back(t);
    write_file(dir / "five/vae.safetensors", tensors);
    return error(five);
  };
  EXPECT_THAT(without("encoder.downsamples.1.downsamples.2.time_conv."),
              HasSubstr("vae:encoder.downsamples.*: expected 2 levels that resample time (time_conv.weight), found 1"));
  EXPECT_THAT(without("decoder.upsamples.2.upsamples.3."),
              HasSubstr("vae:decoder.upsamples.*: expected 3 levels with a resampling"));
}

// ---- prompts

// Any sentencepiece vocabulary will do: what counts is the end and the pads, of which the encoder is told.
TEST(Wan, PromptsEndAndArePadded) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  config.given["tokenizer_path"] = {tokenizer};
  const Model model(built_plugins(), config, "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  EXPECT_EQ(text.tokens().sizes().at("umt5.length"), 512);
  const Tokens tokens = *text.tokens().of("  a photo of a cat ");
  const std::span<const int32_t> ids = tokens.at("umt5.input_ids").as<int32_t>(),
                                 mask = tokens.at("umt5.attention_mask").as<int32_t>();
  const auto count = std::ranges::count(mask, 1);
  EXPECT_LT(count, 12);
  EXPECT_EQ(ids[static_cast<size_t>(count - 1)], 1);  // </s>
  EXPECT_EQ(std::ranges::count(ids.subspan(static_cast<size_t>(count)), 0), 512 - count);
  EXPECT_EQ(std::ranges::count(text.tokens().of("")->at("umt5.attention_mask").as<int32_t>(), 1), 1);
}

TEST(Wan, WithoutATokenizerTheErrorSaysWhatToGive) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  EXPECT_THAT(error_of([&] {
                TextEncoding text(device, model, DType::f32, {});
                (void)text.tokens().of("a");
              }),
              testing::AllOf(HasSubstr("model.tokenizer_path"), HasSubstr("spiece.model")));
}

// ---- sizes

HostTensor denoise(const Model& model, int64_t time, int64_t height, int64_t width, int64_t batch) {
  const Sizes sizes{{"batch", batch}, {"time", time}, {"height", height}, {"width", width}, {"text_length", 12}};
  return output_of(model, build_sample_graph(model, sizes, no_adapter, DType::f32), "output");
}

// Sides that are not equal, odd numbers of patches among them, several samples, one frame and more.
TEST(Wan, EverySizeIsDenoised) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  using Size = std::array<int64_t, 3>;
  for (const auto& [time, height, width] : {Size{1, 8, 12}, Size{3, 2, 14}, Size{2, 10, 6}}) {
    const HostTensor out = denoise(model, time, height, width, 2);
    EXPECT_EQ(out.desc.shape, (Shape{2, time, height, width, 16}));
    for (const float value : out.as<float>()) ASSERT_TRUE(std::isfinite(value));
  }
}

// Frames of pixels and of latents: the first one has a place of its own, four others have one.
void expect_frames(const Components& all, int64_t channels, int64_t side) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path(), all), "");
  for (const int64_t time : {1, 2, 5}) {
    const int64_t frames = 4 * (time - 1) + 1;
    const Graph encoder =
        model.build("vae.encode", {{"batch", 2}, {"time", frames}, {"height", 32}, {"width", 48}}, DType::f32);
    EXPECT_EQ(encoder.desc(encoder.inputs.at("image")).shape, (Shape{2, frames, 32, 48, 3}));
    EXPECT_EQ(encoder.desc(encoder.outputs.at("posterior")).shape,
              (Shape{2, time, 32 / side, 48 / side, 2 * channels}));
    const Graph decoder = model.build(
        "vae.decode", {{"batch", 2}, {"time", time}, {"height", 32 / side}, {"width", 48 / side}}, DType::f32);
    EXPECT_EQ(decoder.desc(decoder.inputs.at("latents")).shape, (Shape{2, time, 32 / side, 48 / side, channels}));
    EXPECT_EQ(decoder.desc(decoder.outputs.at("image")).shape, (Shape{2, frames, 32, 48, 3}));
  }
  EXPECT_THAT(error_of([&] {
                (void)model.build("vae.encode", {{"batch", 1}, {"time", 4}, {"height", 32}, {"width", 32}}, DType::f32);
              }),
              HasSubstr("a video of 4 frames"));
}
TEST(Wan, FramesAreEncodedAndDecoded) {
  expect_frames(components(), 16, 8);
  expect_frames(ti2v(), 48, 16);
}

// What goes through in chunks takes memory for one; only the video itself grows with its length.
void expect_memory_of_a_chunk(const Components& all, int64_t downscale) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path(), all), "");
  const auto arena = [&](const char* role, int64_t time, int64_t side) {
    const Graph graph =
        model.build(role, {{"batch", 1}, {"time", time}, {"height", side}, {"width", side}}, DType::bf16);
    std::set<Value> weights;
    for (const auto& [name, value] : graph.params) weights.insert(value);
    return static_cast<double>(plan_memory(graph, weights).bytes);
  };
  constexpr double further = 2 * 40.0 * 256 * 256 * 3 * 2;  // frames in 16 bits, in parts and whole
  EXPECT_LT(arena("vae.encode", 81, 256), arena("vae.encode", 41, 256) + further);
  EXPECT_LT(arena("vae.decode", 21, 256 / downscale), arena("vae.decode", 11, 256 / downscale) + further);
}
TEST(Wan, LongVideosTakeNoMoreMemory) {
  expect_memory_of_a_chunk(components(), 8);
  expect_memory_of_a_chunk(ti2v(), 16);
}

// What a model is shown of a picture is the latents of a clip that is grey, which is 0, behind it.
TEST(Wan, GreyIsBehindAFirstFrame) {
  const TempDir dir;
  write_small_wan_i2v(dir / "wan.safetensors");
  const Model model(built_plugins(), with_variant(single(dir / "wan.safetensors"), "wan2.2-low-noise"), "");
  write_png(dir / "start.png", test_picture(48, 32));
  const ImageFile start = open_image(dir / "start.png");
  const ImageCut own{.file = {}, .bucket = {48, 32, 5}};

  Device device(tested_device());
  LatentEncoding encoding({device, model, DType::f32}, int64_t{1} << 40, {});
  ImageInputs images(model.recipe(), encoding);
  encoding.prepare(images.to_encode({{"control", start}}, own));
  const HostTensor shown =
      images.make({{"control", start}}, own, Random(0, Purpose::inpaint_posterior, 0, 0)).at("first_frame");
  ASSERT_EQ(shown.desc.shape, (Shape{1, 2, 4, 6, 16}));

  HostTensor clip = images_to_tensor(std::array{read_cut({start, {48, 32}})}, {});
  clip.desc.shape = {1, 5, 32, 48, 3};
  clip.data.resize(static_cast<size_t>(clip.desc.bytes()));
  Graph graph = model.build("vae.encode", {{"batch", 1}, {"time", 5}, {"height", 32}, {"width", 48}}, DType::f32);
  const Weights weights(device, model.checkpoint(), graph);
  OwnedProgram program(device, graph, weights.bind(graph), "test");
  program->set_input("image", clip);
  program->run();
  const HostTensor posterior = program->output("posterior");
  for (size_t i = 0; i < shown.as<float>().size(); ++i)
    ASSERT_EQ(shown.as<float>()[i], posterior.as<float>()[i / 16 * 32 + i % 16]);
}

// ---- full size

TEST(Wan, FullSizeGraphsAndLoraModules) {
  for (const auto& [dit, tensors, parameters, variant] :
       {std::tuple{wan_1_3b, 825u, int64_t{1418996800}, ""}, std::tuple{wan_14b, 1095u, int64_t{14288491584}, ""},
        std::tuple{wan_ti2v_5b, 825u, int64_t{4999787712}, ""},
        std::tuple{image_to_video(wan_14b), 1095u, int64_t{14288901184}, "wan2.2-low-noise"},
        std::tuple{seeing(image_to_video(wan_14b), 1280), 1303u, int64_t{16394878784}, ""}}) {
    const Shapes shapes = dit.shapes();
    EXPECT_EQ(shapes.size(), tensors);
    EXPECT_EQ(parameters_of(shapes), parameters);
    const Described model(plugin, shapes, variant);
    EXPECT_EQ(model.confidence(), 100);
    Graph graph = model.denoiser(
        {{"batch", 1}, {"time", 3}, {"height", 60}, {"width", 104}, {"text_length", 512}, {"image_length", 257}});
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 3, 60, 104, dit.channels}));
    std::set<std::string> used;
    for (const auto& [name, value] : graph.params) used.insert(name);
    for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
    const AdapterSelection selection({}, model.recipe(), 1);
    EXPECT_EQ(adapt(graph, selection, true).size(), static_cast<size_t>(dit.blocks * (dit.image > 0 ? 12 : 10)));
  }
}

}  // namespace
}  // namespace lh::test::wan_test
