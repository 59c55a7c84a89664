// LTX-2 beyond its golden cases: every layout of files, refusals, prompts, lengths of videos, and the published models
// by their shapes.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <set>

#include "compile/adapter_selection.h"
#include "encode/prompt_tokens.h"
#include "graph/print.h"
#include "io/lora_names.h"
#include "passes/adapt.h"
#include "support/layouts.h"
#include "support/ltx2_shapes.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/wrong_models.h"

namespace lh::test::ltx2_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "ltx2";
constexpr int64_t gemma_width = 64, gemma_layers = 2;

void set(Shapes& shapes, const std::string& name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes gemma, vae, connector, audio, projection;
    add_gemma3(gemma, "", gemma_width, gemma_layers, 2, 96, 384);
    add_ltx2_vae(vae, "", small_ltx2_vae);
    add_ltx2_connector(connector, "", {1, small_ltx2.text, 8});
    add_ltx2_connector(audio, "audio_embeddings_connector.", {1, small_ltx2.text, 8});
    add_linear(projection, "aggregate_embed", small_ltx2.text, gemma_width * (gemma_layers + 1), false);
    return std::map<std::string, std::vector<Given>>{
        {"denoiser", filled(small_ltx2.shapes())}, {"vae", filled(vae)},
        {"connector", filled(connector)},          {"audio_connector", filled(audio)},
        {"text_projection", filled(projection)},   {"gemma3", filled(gemma)}};
  }();
  return all;
}

const std::string tokenizer = std::string(source_dir()) + "/tests/data/gemma_small";

// `to` and tensors that are named behind a prefix there.
void add(std::vector<Given>& to, const std::string& prefix, const std::vector<Given>& tensors) {
  for (const Given& t : tensors) to.push_back({prefix + t.name, t.tensor});
}

// A file for each component, and one for both connectors.
ModelConfig write_separate(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  std::vector<Given> both = components().at("audio_connector");
  add(both, "video_embeddings_connector.", components().at("connector"));
  write_file(folder / "connector.safetensors", both);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const std::string name : {"vae", "connector", "text_projection", "gemma3"})
    config.given[name + "_path"] = {folder / (name + ".safetensors")};
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

// ---- layouts

// As published: all but Gemma.
ModelConfig published(const fs::path& folder, const std::string& denoiser) {
  std::vector<Given> all;
  for (const auto& [name, prefix] :
       std::map<std::string, std::string>{{"denoiser", denoiser},
                                          {"vae", "vae."},
                                          {"connector", denoiser + "video_embeddings_connector."},
                                          {"audio_connector", denoiser},
                                          {"text_projection", "text_embedding_projection."}})
    add(all, prefix, components().at(name));
  for (const std::string& name : std::vector<std::string>{
           "audio_vae.per_channel_statistics.mean-of-means", "audio_vae.encoder.conv_in.conv.weight",
           "vocoder.conv_pre.weight", "vae.per_channel_statistics.channel"})  // too little for sound
    all.push_back({name, counting({2, 2})});
  write_file(folder / "all.safetensors", all);
  write_file(folder / "gemma3.safetensors", components().at("gemma3"));
  ModelConfig config = single(folder / "all.safetensors");
  config.given["gemma3_path"] = {folder / "gemma3.safetensors"};
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

// A diffusers directory has connectors and projection in one file.
ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  std::map<std::string, std::vector<Given>> parts = components();
  const CheckpointSpec spec = spec_of(plugin);
  std::vector<Given> both;
  for (const char* name : {"connector", "audio_connector"}) {
    for (const Given& t : parts.at(name))
      for (const Given& part : in_diffusers(*spec.component(name), t, parts.at(name)))
        both.push_back({part.name, change(part.tensor)});
    parts.erase(name);
  }
  both.push_back({"text_proj_in.weight", change(parts.at("text_projection").front().tensor)});
  parts.erase("text_projection");
  write_directory(folder, spec, parts, {"denoiser", "vae"}, variant, change);
  write_file(folder / "connectors" / ("diffusion_pytorch_model" + variant + ".safetensors"), both);
  put(folder / "model_index.json", R"({"_class_name": "LTX2Pipeline"})");
  ModelConfig config = single(folder);
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

// The text encoder's file as ComfyUI's, with its tokenizer and what sees inside.
ModelConfig with_comfyui_encoder(const fs::path& folder) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors = components().at("gemma3");
  tensors.push_back({"spiece_model", counting({2, 2})});
  tensors.push_back({"vision_model.embeddings.patch_embedding.weight", counting({2, 2})});
  tensors.push_back({"multi_modal_projector.mm_soft_emb_norm.weight", counting({2, 2})});
  write_file(folder / "gemma3.safetensors", tensors);
  return config;
}

const Layout layouts[] = {
    {"published", [](const fs::path& p) { return published(p, "model.diffusion_model."); }},
    {"published_without_a_prefix", [](const fs::path& p) { return published(p, ""); }},
    {"comfyui_encoder", with_comfyui_encoder},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
};

class Ltx2Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Ltx2Layouts, OpenAsTheSameModel) {
  expect_same_model(plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
                    {{"denoiser", {{"batch", 1}, {"time", 3}, {"height", 4}, {"width", 6}, {"text_length", 16}}},
                     {"conditioner", {{"batch", 2}, {"gemma3.length", 16}}},
                     {"vae.encode", {{"batch", 1}, {"time", 9}, {"height", 64}, {"width", 32}}},
                     {"vae.decode", {{"batch", 1}, {"time", 3}, {"height", 4}, {"width", 2}}}});
}

INSTANTIATE_TEST_SUITE_P(All, Ltx2Layouts, testing::ValuesIn(layouts), layout_name);

// ---- sound

// The autoencoder of sound and the vocoder, under the names of published files.
std::vector<Given> sound_vae() {
  Shapes shapes;
  add_ltx2_sound_vae(shapes, "", small_ltx2_sound);
  return filled(shapes);
}
std::vector<Given> vocoder(const Ltx2Voice& size) {
  Shapes shapes;
  add_ltx2_vocoder(shapes, "", size);
  return filled(shapes);
}

ModelConfig of_sound(const fs::path& autoencoder, const fs::path& voice) {
  ModelConfig config;
  config.given["audio_vae_path"] = {autoencoder};
  config.given["vocoder_path"] = {voice};
  config.given["sound"] = {"true"};
  return config;
}

ModelConfig separate_sound(const fs::path& folder, const Ltx2Voice& size) {
  write_file(folder / "audio_vae.safetensors", sound_vae());
  write_file(folder / "vocoder.safetensors", vocoder(size));
  return of_sound(folder / "audio_vae.safetensors", folder / "vocoder.safetensors");
}

// As LTX-2.5 is published: one file for both.
ModelConfig bundled_sound(const fs::path& folder, const Ltx2Voice& size) {
  std::vector<Given> all;
  for (const Given& t : sound_vae()) all.push_back({"audio_vae." + t.name, t.tensor});
  for (const Given& t : vocoder(size)) all.push_back({"vocoder." + t.name, t.tensor});
  write_file(folder / "sound.safetensors", all);
  return of_sound(folder / "sound.safetensors", folder / "sound.safetensors");
}

// The folders of a diffusers directory, or of the vocoder its file.
ModelConfig folders_of_sound(const fs::path& folder, const Ltx2Voice& size, bool file) {
  std::vector<Given> autoencoder = sound_vae(), voice = vocoder(size);
  for (Given& t : autoencoder) {
    if (t.name == "per_channel_statistics.mean-of-means") t.name = "latents_mean";
    if (t.name == "per_channel_statistics.std-of-means") t.name = "latents_std";
  }
  const std::pair<std::string, std::string> names[] = {
      {"resblocks.", "resnets."},  {"ups.", "upsamplers."},   {"conv_pre.", "conv_in."},
      {"conv_post.", "conv_out."}, {"act_post.", "act_out."}, {"downsample.lowpass.", "downsample."}};
  for (Given& t : voice)
    for (const auto& [native, other] : names)
      if (const size_t at = t.name.find(native); at != t.name.npos) t.name.replace(at, native.size(), other);
  const fs::path weights = folder / "vocoder" / "diffusion_pytorch_model.safetensors";
  for (const char* part : {"audio_vae", "vocoder"}) fs::create_directories(folder / part);
  write_file(folder / "audio_vae" / "diffusion_pytorch_model.safetensors", autoencoder);
  write_file(weights, voice);
  return of_sound(folder, file ? weights : folder);
}

const std::vector<std::pair<std::string, Sizes>> sound_roles = {{"sound.encode", {{"batch", 2}, {"samples", 1280}}},
                                                                {"sound.decode", {{"batch", 2}, {"rows", 2}}}};

TEST(Ltx2Sound, LayoutsOpenAsTheSameModel) {
  const std::function<ModelConfig(const fs::path&, const Ltx2Voice&)> layouts[] = {
      bundled_sound, [](const fs::path& p, const Ltx2Voice& size) { return folders_of_sound(p, size, false); },
      [](const fs::path& p, const Ltx2Voice& size) { return folders_of_sound(p, size, true); }};
  for (const Ltx2Voice& size : {small_ltx2_voice, small_ltx23_voice})
    for (size_t i = 0; i < std::size(layouts); ++i) {
      SCOPED_TRACE(fmt::format("layout {}, {} channels", i, size.first));
      const TempDir dir, other;
      const Model want(built_plugins(), separate_sound(dir.path(), size), plugin);
      const Model got(built_plugins(), layouts[i](other.path(), size), plugin);
      expect_same(got.checkpoint(), want.checkpoint(), as_is);
      for (const auto& [role, sizes] : sound_roles) EXPECT_NO_THROW(got.build(role, sizes, DType::f32)) << role;
    }
}

// In the file of the model, too, where nothing of it is in the way of who wants none.
TEST(Ltx2Sound, IsFoundBesideTheModel) {
  for (const Ltx2Voice& size : {small_ltx2_voice, small_ltx23_voice})
    for (const std::string denoiser : {"model.diffusion_model.", ""}) {
      const TempDir dir;
      std::vector<Given> all;
      for (const auto& [prefix, tensors] : {std::pair{denoiser, components().at("denoiser")},
                                            {std::string("vae."), components().at("vae")},
                                            {std::string("audio_vae."), sound_vae()},
                                            {std::string("vocoder."), vocoder(size)}})
        for (const Given& t : tensors) all.push_back({prefix + t.name, t.tensor});
      write_file(dir / "all.safetensors", all);
      ModelConfig config = single(dir / "all.safetensors");
      const Sizes clip = {{"batch", 1}, {"time", 3}, {"height", 4}, {"width", 6}, {"text_length", 16}};
      EXPECT_NO_THROW(Model(built_plugins(), config, "").build("denoiser", clip, DType::f32));
      config.given["sound"] = {"true"};
      const Model model(built_plugins(), config, "");
      for (const auto& [role, sizes] : sound_roles) EXPECT_NO_THROW(model.build(role, sizes, DType::f32)) << role;
      std::set<std::string> names;
      for (const auto& [name, desc] : model.checkpoint().weights())
        if (name.starts_with("vocoder:")) names.insert(name);
      EXPECT_EQ(names.size(), vocoder(size).size() - (size.second > 0 ? 1 : 0));  // but for inverse_basis
    }
}

// 640 samples are a row; of the first row the spectrogram has one frame, of each other one four.
TEST(Ltx2Sound, LengthsFollowFromRows) {
  for (const auto& [size, samples_of_frame] : {std::pair{small_ltx2_voice, 240}, {small_ltx23_voice, 480}}) {
    const TempDir dir;
    const Model model(built_plugins(), separate_sound(dir.path(), size), plugin);
    const Graph encode = model.build("sound.encode", {{"batch", 2}, {"samples", 3 * 640}}, DType::f32);
    EXPECT_EQ(encode.desc(encode.outputs.at("posterior")).shape, (Shape{2, 3, 256}));
    const Graph decode = model.build("sound.decode", {{"batch", 2}, {"rows", 3}}, DType::f32);
    EXPECT_EQ(decode.desc(decode.outputs.at("sound")).shape, (Shape{2, 9 * samples_of_frame, 2}));
    EXPECT_EQ(decode.desc(decode.outputs.at("sound")).dtype, DType::f32);
    EXPECT_THAT(error_of([&] {
                  model.build("sound.encode", {{"batch", 1}, {"samples", 1000}}, DType::f32);
                }),
                HasSubstr("LTX-2 encodes a multiple of 640 samples of sound, found 1000"));
  }
}

TEST(Ltx2Sound, WithoutTheSettingThereIsNone) {
  const TempDir dir;
  ModelConfig config = separate_sound(dir.path(), small_ltx2_voice);
  config.given.erase("sound");
  const Model model(built_plugins(), config, plugin);
  EXPECT_THAT(error_of([&] {
                model.build("sound.decode", {{"batch", 1}, {"rows", 2}}, DType::f32);
              }),
              HasSubstr("plugin 'ltx2' has no role 'sound.decode'"));
}

TEST(Ltx2Sound, MissingPartsAreNamed) {
  const TempDir dir;
  ModelConfig config = separate_sound(dir.path(), small_ltx2_voice);
  config.given.erase("vocoder_path");
  const Model mute(built_plugins(), config, plugin);
  EXPECT_NO_THROW(mute.build("sound.encode", {{"batch", 1}, {"samples", 640}}, DType::f32));
  EXPECT_THAT(
      error_of([&] {
        mute.build("sound.decode", {{"batch", 1}, {"rows", 2}}, DType::f32);
      }),
      HasSubstr("role sound.decode needs the weights of vocoder, which the checkpoint does not hold; give their "
                "file as model.vocoder_path"));
}

TEST(Ltx2Sound, WrongTensorsAreNamed) {
  const auto error = [](const Ltx2Voice& size, const std::function<void(Shapes&)>& change) {
    Shapes vae, voice;
    add_ltx2_sound_vae(vae, "audio_vae.", small_ltx2_sound);
    add_ltx2_vocoder(voice, "vocoder.", size);
    vae.merge(voice);
    change(vae);
    const TempDir dir;
    write_file(dir / "sound.safetensors", filled(vae));
    const fs::path file = dir / "sound.safetensors";
    return error_of([&] { Model(built_plugins(), of_sound(file, file), plugin); });
  };
  EXPECT_EQ(error(small_ltx23_voice, [](Shapes&) {}), "");
  EXPECT_THAT(
      error(small_ltx23_voice,
            [](Shapes& s) { std::erase_if(s, [](const auto& t) { return t.first.starts_with("vocoder.bwe"); }); }),
      HasSubstr("bwe_generator.*, its second network, is missing"));
  EXPECT_THAT(error(small_ltx2_voice,
                    [](Shapes& s) {
                      set(s, "vocoder.ups.1.weight", {16, 8, 9});
                    }),
              HasSubstr("ups.1.weight: expected a kernel of 4, 8, 11, 12, 15 or 16 places, found 9"));
  EXPECT_THAT(error(small_ltx2_voice,
                    [](Shapes& s) {
                      set(s, "vocoder.ups.1.weight", {16, 8, 16});
                    }),
              HasSubstr("expected kernels that make time 240 times as long, found 288 times"));
  EXPECT_THAT(error(small_ltx2_voice, [](Shapes& s) { s.erase("vocoder.resblocks.14.convs1.0.weight"); }),
              HasSubstr("resblocks.*: expected the same number for each of 5 levels, found 14 in all"));
  EXPECT_THAT(error(small_ltx23_voice,
                    [](Shapes& s) {
                      set(s, "vocoder.vocoder.act_post.upsample.filter", {1, 1, 8});
                    }),
              HasSubstr("act_post.upsample.filter: expected shape [1, 1, 12], found [1, 1, 8]"));
  EXPECT_THAT(error(small_ltx2_voice,
                    [](Shapes& s) {
                      set(s, "audio_vae.decoder.up.2.attn.0.q.weight", {16, 16, 1, 1});
                    }),
              HasSubstr("audio_vae:decoder.up.2.attn.0.q.weight: this autoencoder of sound has attention"));
  EXPECT_THAT(error(small_ltx2_voice,
                    [](Shapes& s) {
                      for (const char* name : {"mean-of-means", "std-of-means"})
                        set(s, fmt::format("audio_vae.per_channel_statistics.{}", name), {100});
                    }),
              HasSubstr("expected a multiple of the 8 channels of audio_vae:decoder.conv_in.conv.weight, found 100"));
}

// ---- LTX-2.5, whose text encoder is published with the projection, its tokenizer and what sees and hears inside

constexpr int64_t gemma4_layers = 6;  // the last one sees all

std::vector<Given> gemma4() {
  Shapes shapes;
  add_gemma4(shapes, "", gemma_width, gemma4_layers, 2, 96, 384);
  for (const auto& [module, width] : {std::pair{"video", small_ltx25.text}, std::pair{"audio", small_ltx25.sound}})
    add_linear(shapes, fmt::format("text_embedding_projection.{}_aggregate_embed", module), width,
               gemma_width * (gemma4_layers + 1));
  return filled(shapes);
}

std::vector<Given> gated_connectors() {
  Shapes shapes;
  add_ltx2_connector(shapes, "video_embeddings_connector.", {1, small_ltx25.text, 8, true});
  add_ltx2_connector(shapes, "audio_embeddings_connector.", {1, small_ltx25.sound, 8, true, 64});
  return filled(shapes);
}

ModelConfig write_separate25(const fs::path& folder) {
  fs::create_directories(folder);
  write_file(folder / "denoiser.safetensors", filled(small_ltx25.shapes()));
  write_file(folder / "connector.safetensors", gated_connectors());
  write_file(folder / "gemma4.safetensors", gemma4());
  write_file(folder / "vae.safetensors", components().at("vae"));
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const std::string name : {"vae", "connector", "gemma4"})
    config.given[name + "_path"] = {folder / (name + ".safetensors")};
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

ModelConfig published25(const fs::path& folder) {
  ModelConfig config = write_separate25(folder);
  std::vector<Given> all, text = gemma4();
  for (const auto& tensors : {filled(small_ltx25.shapes()), gated_connectors()})
    add(all, "model.diffusion_model.", tensors);
  write_file(folder / "all.safetensors", all);
  const std::string json = get(fs::path(tokenizer) / "tokenizer.json");
  HostTensor bytes(Desc{DType::u8, {static_cast<int64_t>(json.size())}});
  std::memcpy(bytes.data.data(), json.data(), json.size());
  text.push_back({"tokenizer_json", bytes});
  for (const char* name : {"vision_model.patch_dense.weight", "multi_modal_projector.embedding_projection.weight",
                           "audio_projector.embedding_projection.weight", "hf_asset__tokenizer_config.json"})
    text.push_back({name, counting({2, 2})});
  write_file(folder / "gemma4.safetensors", text);
  config.name_or_path = folder / "all.safetensors";
  config.given.erase("connector_path");
  config.given["tokenizer_path"] = {folder / "gemma4.safetensors"};
  return config;
}

TEST(Ltx25, PublishedFilesOpenAsTheSameModel) {
  expect_same_model(plugin, {"published", published25}, write_separate25,
                    {{"denoiser", {{"batch", 1}, {"time", 3}, {"height", 4}, {"width", 6}, {"text_length", 16}}},
                     {"conditioner", {{"batch", 2}, {"gemma4.length", 16}}},
                     {"vae.encode", {{"batch", 1}, {"time", 9}, {"height", 64}, {"width", 32}}}},
                    "dev");
}

// The folder's text encoder stands behind the name of the model that it is a part of there.
TEST(Ltx25, ADirectoryOpens) {
  const TempDir dir;
  const CheckpointSpec spec = spec_of(plugin);
  const std::vector<Given> denoiser = filled(small_ltx25.shapes());
  std::vector<Given> both, text;
  for (const Given& t : gemma4()) {
    const std::string projection = "text_embedding_projection.", module = "_aggregate_embed";
    if (t.name.starts_with(projection))
      both.push_back(
          {t.name.substr(projection.size(), 5) + "_text_proj_in" + t.name.substr(projection.size() + 5 + module.size()),
           t.tensor});
    else
      text.push_back({"model.language_model" + t.name.substr(5), t.tensor});
  }
  const std::string prefix = "video_embeddings_connector.";
  for (Given t : gated_connectors()) {
    const bool of_clip = t.name.starts_with(prefix);
    if (of_clip) t.name = t.name.substr(prefix.size());
    for (const Given& part : in_diffusers(*spec.component(of_clip ? "connector" : "audio_connector"), t, {t}))
      both.push_back(part);
  }
  text.push_back({"model.embed_audio.embedding_projection.weight", counting({2, 2})});
  write_directory(dir.path(), spec, {{"denoiser", denoiser}, {"vae", components().at("vae")}}, {"denoiser", "vae"}, "",
                  as_is);
  for (const auto& [folder, name, tensors] :
       {std::tuple{"connectors", "diffusion_pytorch_model", both}, std::tuple{"text_encoder", "model", text}}) {
    fs::create_directories(dir / folder);
    write_file(dir / folder / fmt::format("{}.safetensors", name), tensors);
  }
  put(dir / "model_index.json", R"({"_class_name": "LTX2Pipeline"})");
  ModelConfig config = single(dir.path());
  config.given["tokenizer_path"] = {tokenizer};
  config.given["sound"] = {"true"};
  const Model model(built_plugins(), config, "");
  EXPECT_TRUE(
      model.build("conditioner", {{"batch", 2}, {"gemma4.length", 16}}, DType::f32).outputs.contains("sound_text"));
  EXPECT_TRUE(model
                  .build("denoiser",
                         {{"batch", 1},
                          {"time", 3},
                          {"height", 4},
                          {"width", 6},
                          {"text_length", 16},
                          {"sound", 17},
                          {"sound_text_length", 16}},
                         DType::f32)
                  .outputs.contains("sound_output"));
}

TEST(Ltx25, ThePublishedTextEncoderHasItsTokenizerInside) {
  const TempDir dir;
  const ModelConfig config = published25(dir.path());
  const auto ids = [](const ModelConfig& of) {
    const Model model(built_plugins(), of, "");
    PromptTokens tokens(model);
    const std::shared_ptr<const Tokens> made = tokens.of("a cat ");
    const std::span<const int32_t> span = made->at("gemma4.input_ids").as<int32_t>();
    return std::vector<int32_t>(span.begin(), span.end());
  };
  ModelConfig other = config;
  other.given["tokenizer_path"] = {tokenizer};
  EXPECT_EQ(ids(config), ids(other));
  EXPECT_EQ(ids(config).front(), 2);
  other.given["tokenizer_path"] = {dir / "vae.safetensors"};
  EXPECT_THAT(
      error_of([&] { ids(other); }),
      HasSubstr("vae.safetensors: expected a tensor \"tokenizer_json\" of at most 67108864 bytes (U8), found none: "
                "give tokenizer.json"));
}

// Whatever the clip, tokens of its first frame and of no other are marked.
TEST(Ltx25, TheFirstFrameIsMarked) {
  const Described model(plugin, small_ltx25.shapes());
  for (const int64_t time : {1, 3}) {
    const Graph graph = model.denoiser({{"batch", 1}, {"time", time}, {"height", 2}, {"width", 2}, {"text_length", 8}});
    std::vector<std::vector<float>> marks;
    for (uint32_t id = 1; id <= graph.value_count(); ++id)
      if (const ValueInfo& info = graph.info({id});
          info.kind == ValueKind::constant && info.desc.shape == Shape{1, time, 1, 1})
        marks.push_back({info.constant.as<float>().begin(), info.constant.as<float>().end()});
    std::vector<float> want(static_cast<size_t>(time), 0.0f);
    want.front() = 1;
    EXPECT_THAT(marks, testing::Contains(want)) << time;
  }
}

// In a GGUF file the mark has one axis.
TEST(Ltx25, WrongTensorsAreNamed) {
  const auto error = [](const std::function<void(Shapes&)>& change) {
    Shapes shapes = small_ltx25.shapes();
    change(shapes);
    return error_of([&] { Described(plugin, shapes); });
  };
  EXPECT_EQ(error([](Shapes& s) { set(s, "keyframes_abs_pos_embedding", {128}); }), "");
  EXPECT_EQ(error([](Shapes& s) { s.erase("keyframes_abs_pos_embedding"); }), "");
  EXPECT_THAT(error([](Shapes& s) {
                set(s, "keyframes_abs_pos_embedding", {2, 64});
              }),
              HasSubstr("keyframes_abs_pos_embedding: expected shape [1, 128], found [2, 64]"));
  EXPECT_THAT(error([](Shapes& s) { set(s, "transformer_blocks.0.ff.net.2.bias", {128}); }),
              HasSubstr("missing tensor transformer_blocks.0.ff.net.0.proj.bias"));
  EXPECT_THAT(error([](Shapes& s) { std::erase_if(s, [](const auto& t) { return t.first.starts_with("prompt_"); }); }),
              HasSubstr("missing tensor prompt_adaln_single.emb.timestep_embedder.linear_1.weight"));
}

TEST(Ltx25, AnotherGemmaIsRefused) {
  const auto with = [](const Ltx2Dit& size, const std::string& component, bool fourth) {
    Shapes shapes = size.shapes();
    (fourth ? add_gemma4 : add_gemma3)(shapes, component + ":", gemma_width, gemma4_layers, 2, 96, 60);
    return error_of([&] { Described(plugin, shapes); });
  };
  EXPECT_EQ(with(small_ltx25, "gemma4", true), "");
  EXPECT_THAT(
      with(small_ltx23, "gemma3", true),
      HasSubstr("gemma3:model.layers.0.layer_scalar: this is Gemma 4, which reads the prompts of LTX-2.5 alone"));
  EXPECT_THAT(with(small_ltx25, "gemma4", false), HasSubstr("gemma4:model.layers.5.self_attn"));
}

// ---- what is not LTX-2, or not whole

const WrongModel wrongs[] = {
    {"heads",
     [](Shapes& s) {
       set(s, "patchify_proj.weight", {200, 128});
     },
     "patchify_proj.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"table",
     [](Shapes& s) {
       set(s, "transformer_blocks.1.scale_shift_table", {9, 128});
     },
     "transformer_blocks.1.scale_shift_table: expected shape [6, 128], found [9, 128]"},
    {"feed_forward", [](Shapes& s) { s.erase("transformer_blocks.1.ff.net.0.proj.bias"); },
     "missing tensor transformer_blocks.1.ff.net.0.proj.bias"},
    {"connector_of_another",
     [](Shapes& s) {
       add_ltx2_connector(s, "connector:", {1, 256, 8});
     },
     "caption_projection.linear_1.weight takes 128 columns, but connector gives 256: the files do not belong together"},
    {"projection_of_another",
     [](Shapes& s) {
       add_gemma3(s, "gemma3:", 64, 2, 2, 96, 60);
       add_linear(s, "text_projection:aggregate_embed", 128, 64 * 2, false);
     },
     "text_projection:aggregate_embed.weight takes 128 columns, but 3 states of gemma3 have 192"},
    {"vae_part",
     [](Shapes& s) {
       add_ltx2_vae(s, "vae:", small_ltx2_vae);
       set(s, "vae:decoder.up_blocks.1.conv.conv.weight", {96, 32, 3, 3, 3});
     },
     "vae:decoder.up_blocks.1.conv.conv.weight: expected 2, 4 or 8 times the channels of "
     "vae:decoder.up_blocks.2.res_blocks.0.conv1.conv.weight, 16, as rows, found 96"},
    {"vae_part_without_rows",
     [](Shapes& s) {
       add_ltx2_vae(s, "vae:", small_ltx2_vae);
       set(s, "vae:encoder.down_blocks.1.conv.conv.weight", {0, 8, 3, 3, 3});
     },
     "vae:encoder.down_blocks.1.conv.conv.weight: expected shape [*, 8, 3, 3, 3], found [0, 8, 3, 3, 3]"},
    {"vae_part_of_one_number",
     [](Shapes& s) {
       add_ltx2_vae(s, "vae:", small_ltx2_vae);
       set(s, "vae:decoder.up_blocks.2.res_blocks.0.conv1.conv.weight", {});
     },
     "vae:decoder.up_blocks.2.res_blocks.0.conv1.conv.weight: expected at least 1 axes, found shape []"},
    {"vae_that_decodes_by_diffusion",
     [](Shapes& s) {
       add_ltx2_vae(s, "vae:", small_ltx2_vae);
       set(s, "vae:decoder.diff_blocks.0.attn.proj.weight", {16, 16});
     },
     "vae:decoder.diff_blocks.0.attn.proj.weight: this autoencoder decodes by diffusion, which is not supported: use "
     "the one with a decoder of convolutions (ltx-2.5-video-vae-conv-bf16.safetensors)"},
    {"vae_told_a_timestep",
     [](Shapes& s) {
       add_ltx2_vae(s, "vae:", small_ltx2_vae);
       set(s, "vae:decoder.last_time_embedder.timestep_embedder.linear_1.weight", {16, 256});
     },
     "this decoder is told a timestep"},
};

TEST(Ltx2, WrongTensorsAreNamed) { expect_refused(plugin, small_ltx2.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"ltx_video", [](Shapes& s) { s.erase("audio_scale_shift_table"); },
     "this is LTX-Video, which has no sound and whose text comes from T5"},
};

// Gates and modulated text are those of LTX-2.3 and LTX-2.5.
TEST(Ltx2, FilesOfTheVideoAloneOpen) {
  for (const Ltx2Dit& size : {small_ltx23, small_ltx25}) {
    Shapes shapes = size.shapes();
    std::erase_if(shapes, [](const auto& item) {
      const std::string& name = item.first;
      return name.find("audio") != name.npos || name.find("a2v") != name.npos || name.starts_with("av_ca");
    });
    EXPECT_EQ(Described(plugin, shapes).confidence(), 100);
  }
}

TEST(Ltx2, RelativesAreRefusedByName) { expect_files_refused({plugin}, small_ltx2.shapes(), relatives); }

// ---- what the user says

TEST(Ltx2, DistilledModelsHaveEightSteps) {
  const Described dev(plugin, small_ltx2.shapes()), distilled(plugin, small_ltx2.shapes(), "distilled");
  EXPECT_EQ(dev.recipe().sampling.steps, 40);
  EXPECT_EQ(distilled.recipe().sampling.steps, 8);
  EXPECT_EQ(distilled.recipe().sampling.guidance, 1.0);
}

TEST(Ltx25, SamplesAsTheVendorDoes) {
  const Described dev(plugin, small_ltx25.shapes()), distilled(plugin, small_ltx25.shapes(), "distilled");
  EXPECT_EQ(dev.recipe().sampling.steps, 30);
  EXPECT_EQ(dev.recipe().sampling.guidance, 3.0);
  EXPECT_EQ(distilled.recipe().sampling.steps, 8);
  EXPECT_EQ(distilled.recipe().sampling.sampler, "euler_ancestral");
  for (const Described* one : {&dev, &distilled}) EXPECT_TRUE(one->recipe().tokenizers.contains("gemma4"));
}

// Faster frames stand closer in time, so that the tables of positions are others.
TEST(Ltx2, FramesASecondScaleTheTime) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  const auto tables = [&] {
    const Model model(built_plugins(), config, "");
    const Graph graph = model.build(
        "denoiser", {{"batch", 1}, {"time", 3}, {"height", 2}, {"width", 2}, {"text_length", 8}}, DType::f32);
    std::vector<float> first;  // cosines of the frames
    for (uint32_t id = 1; id <= graph.value_count() && first.empty(); ++id)
      if (const ValueInfo& info = graph.info({id}); info.kind == ValueKind::constant && info.desc.shape == Shape{3, 21})
        first = {info.constant.as<float>().begin(), info.constant.as<float>().end()};
    return first;
  };
  const std::vector<float> at_24 = tables();
  config.given["frame_rate"] = {"48"};
  const std::vector<float> at_48 = tables();
  ASSERT_EQ(at_24.size(), 3u * 21);
  ASSERT_EQ(at_48.size(), 3u * 21);
  const auto angle = [](double frames, double rate) { return (2 * frames / rate / 20 - 1) * std::numbers::pi / 2; };
  EXPECT_NEAR(at_24[21], std::cos(angle(5, 24)), 1e-6);  // the second latent: of frames 1 to 9, the lowest frequency
  EXPECT_NEAR(at_48[21], std::cos(angle(5, 48)), 1e-6);
}

// ---- prompts

TEST(Ltx2, PromptsBeginWithBosAndHaveNoEnd) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  PromptTokens tokens(model);
  const std::shared_ptr<const Tokens> of = tokens.of("  a cat ");
  const std::span<const int32_t> ids = of->at("gemma3.input_ids").as<int32_t>(),
                                 mask = of->at("gemma3.attention_mask").as<int32_t>();
  ASSERT_EQ(ids.size(), 1024u);
  EXPECT_EQ(ids[0], 2);
  const auto there = std::ranges::count(mask, 1);
  EXPECT_EQ(there, std::ranges::count(tokens.of("a cat")->at("gemma3.attention_mask").as<int32_t>(), 1));
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(mask[i], i < static_cast<size_t>(there) ? 1 : 0);
}

TEST(Ltx2, RegistersFillWholeTimes) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  EXPECT_THAT(error_of([&] {
                model.build("conditioner", {{"batch", 1}, {"gemma3.length", 12}}, DType::f32);
              }),
              HasSubstr("model.max_sequence_length: expected a multiple of 8 (rows of learnable_registers), found 12"));
}

// ---- full size

TEST(Ltx2, FullSizeGraphsAndLoraModules) {
  for (const Ltx2Dit& size : {full_ltx2, full_ltx23, full_ltx25}) {
    Shapes shapes = size.shapes();
    const Described model(plugin, shapes);
    EXPECT_EQ(model.confidence(), 100);
    Graph graph = model.denoiser({{"batch", 1}, {"time", 3}, {"height", 8}, {"width", 8}, {"text_length", 1024}});
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 3, 8, 8, 128}));
    std::set<std::string> used;
    for (const auto& [name, value] : graph.params) used.insert(name);
    for (const auto& [name, desc] : shapes) {
      const bool sound = name.find("audio") != name.npos || name.find("a2v") != name.npos || name.starts_with("av_ca");
      EXPECT_EQ(used.contains(name), !sound) << name;
    }
    EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 480u);
  }
}

// ---- with sound

const Sizes with_sound{{"batch", 2},
                       {"time", 3},
                       {"height", 4},
                       {"width", 6},
                       {"text_length", 16},
                       {"sound", 17},
                       {"sound_text_length", 16}};
const std::map<std::string, std::string> sound_setting{{"sound", "true"}};

TEST(Ltx2Sound, FullSizeGraphsUseAllTensors) {
  for (const Ltx2Dit& size : {full_ltx2, full_ltx23, full_ltx25}) {
    Shapes shapes = size.shapes();
    const Described model(plugin, shapes, sound_setting);
    Sizes sizes = with_sound;
    Graph graph = model.denoiser(sizes);
    EXPECT_EQ(graph.desc(graph.outputs.at("sound_output")).shape, (Shape{2, 17, 128}));
    EXPECT_EQ(graph.desc(graph.inputs.at("sound_text")).shape, (Shape{2, 16, size.gated ? 2048 : 3840}));
    EXPECT_EQ(graph.params.size(), shapes.size());
    EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 1344u);

    sizes.erase("sound"), sizes.erase("sound_text_length");
    Graph alone = model.denoiser(sizes);
    EXPECT_FALSE(alone.outputs.contains("sound_output"));
    EXPECT_FALSE(alone.inputs.contains("sound_text"));
    EXPECT_EQ(print(alone), print(Described(plugin, shapes).denoiser(sizes)));
  }
}

// What the host is told of it; without the setting there is no such section.
TEST(Ltx2Sound, RecipesSayHowSoundIsRead) {
  const auto text = [](const Ltx2Dit& size, std::map<std::string, std::string> settings) {
    return Described(plugin, size.shapes(), settings).recipe_text();
  };
  EXPECT_THAT(text(small_ltx2, sound_setting), HasSubstr("  output_rate: 24000\n  frame_rate: 24\n"));
  for (const Ltx2Dit& later : {small_ltx23, small_ltx25})
    EXPECT_THAT(text(later, {{"sound", "true"}, {"variant", "distilled"}, {"frame_rate", "25"}}),
                HasSubstr("  output_rate: 48000\n  frame_rate: 25\n"));
  EXPECT_THAT(text(small_ltx2, sound_setting), HasSubstr("sound_text: {source: conditioner.sound_text}"));
  for (const std::map<std::string, std::string>& off : {std::map<std::string, std::string>{}, {{"sound", "false"}}})
    for (const char* line : {"\nsound:", "sound_text", "audio_"})
      EXPECT_THAT(text(small_ltx2, off), testing::Not(HasSubstr(line)));
}

TEST(Ltx2Sound, EveryLayoutHasIt) {
  for (const Layout& layout : layouts) {
    const TempDir dir;
    ModelConfig config = layout.write(dir.path());
    config.given["sound"] = {"true"};
    const Model model(built_plugins(), config, "");
    EXPECT_TRUE(model.build("denoiser", with_sound, DType::f32).outputs.contains("sound_output")) << layout.name;
    const Graph text = model.build("conditioner", {{"batch", 2}, {"gemma3.length", 16}}, DType::f32);
    EXPECT_EQ(text.desc(text.outputs.at("sound_text")).shape, (Shape{2, 16, small_ltx2.text})) << layout.name;
  }
}

// Of a model without it everything else is made.
TEST(Ltx2Sound, WhatIsMissingIsNamed) {
  const auto error = [](const Ltx2Dit& size, const std::function<void(Shapes&)>& change) {
    Shapes shapes = size.shapes();
    change(shapes);
    EXPECT_EQ(error_of([&] { Described(plugin, shapes); }), "");
    return error_of([&] { Described(plugin, shapes, sound_setting); });
  };
  EXPECT_THAT(
      error(small_ltx2, [](Shapes& s) { s.erase("audio_patchify_proj.weight"); }),
      HasSubstr("sound is true, but the transformer has nothing for it: expected audio_patchify_proj.weight and "
                "its like, found none; give a file that has them as model.name_or_path, such as "
                "ltx-2-19b-dev.safetensors, or leave model.sound out"));
  EXPECT_THAT(error(small_ltx23, [](Shapes& s) { s.erase("transformer_blocks.1.audio_prompt_scale_shift_table"); }),
              HasSubstr("missing tensor transformer_blocks.1.audio_prompt_scale_shift_table [2, 64]"));
  EXPECT_THAT(error(small_ltx25,
                    [](Shapes& s) {
                      set(s, "transformer_blocks.0.video_to_audio_attn.to_gate_logits.weight", {2, 64});
                    }),
              HasSubstr("transformer_blocks.0.video_to_audio_attn.to_gate_logits.weight: expected shape [1, 64], found "
                        "[2, 64]"));
  EXPECT_THAT(error(small_ltx2,
                    [](Shapes& s) {
                      set(s, "audio_patchify_proj.weight", {96, 128});
                    }),
              HasSubstr("audio_patchify_proj.weight: expected a multiple of 64 rows (heads of 64), found 96"));
  EXPECT_THAT(
      error(small_ltx2,
            [](Shapes& s) {
              add_ltx2_connector(s, "audio_connector:audio_embeddings_connector.", {1, 256, 8});
            }),
      HasSubstr("audio_caption_projection.linear_1.weight takes 128 columns, but audio_connector gives 256: the "
                "files do not belong together"));
}

// What the converters of diffusers and ai-toolkit turn into each other; the blocks' linears have one name.
TEST(Ltx2Sound, LoraNamesOfBothKinds) {
  const LoraNameTable names(spec_of(plugin), small_ltx23.shapes());
  for (const auto& [native, diffusers] : std::map<std::string, std::string>{
           {"audio_patchify_proj", "audio_proj_in"},
           {"audio_proj_out", "audio_proj_out"},
           {"audio_adaln_single.linear", "audio_time_embed.linear"},
           {"audio_prompt_adaln_single.linear", "audio_prompt_adaln.linear"},
           {"av_ca_video_scale_shift_adaln_single.linear", "av_cross_attn_video_scale_shift.linear"},
           {"av_ca_a2v_gate_adaln_single.linear", "av_cross_attn_video_a2v_gate.linear"},
           {"av_ca_audio_scale_shift_adaln_single.linear", "av_cross_attn_audio_scale_shift.linear"},
           {"av_ca_v2a_gate_adaln_single.linear", "av_cross_attn_audio_v2a_gate.linear"},
           {"transformer_blocks.1.audio_attn2.to_out.0", "transformer_blocks.1.audio_attn2.to_out.0"},
           {"transformer_blocks.0.audio_ff.net.0.proj", "transformer_blocks.0.audio_ff.net.0.proj"},
           {"transformer_blocks.0.audio_to_video_attn.to_q", "transformer_blocks.0.audio_to_video_attn.to_q"},
           {"transformer_blocks.0.video_to_audio_attn.to_k", "transformer_blocks.0.video_to_audio_attn.to_k"}}) {
    std::string kohya = "lora_unet_" + native;
    std::ranges::replace(kohya, '.', '_');
    for (const std::string& name : {"diffusion_model." + native, "transformer." + diffusers, kohya}) {
      const LoraPlace* place = names.find(name);
      ASSERT_NE(place, nullptr) << name;
      EXPECT_EQ(place->module, native) << name;
      EXPECT_EQ(place->diffusers, diffusers) << name;
    }
  }
}

// Of the clip's text alone, as such a file is published.
TEST(Ltx2Sound, TheTextNeedsBothParts) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  const auto conditioner = [&](const char* sound) {
    config.given["sound"] = {sound};
    return error_of([&] {
      const Model model(built_plugins(), config, "");
      model.build("conditioner", {{"batch", 1}, {"gemma3.length", 16}}, DType::f32);
    });
  };
  EXPECT_EQ(conditioner("true"), "");
  write_file(dir / "connector.safetensors", components().at("connector"));
  EXPECT_EQ(conditioner("false"), "");
  EXPECT_THAT(conditioner("true"),
              HasSubstr("role conditioner needs the weights of audio_connector, which the checkpoint "
                        "does not hold; give their file as model.connector_path"));

  ModelConfig later = write_separate25(dir / "25");
  std::vector<Given> text = gemma4();
  std::erase_if(text, [](const Given& t) { return t.name.find("audio_aggregate") != t.name.npos; });
  write_file(dir / "25" / "gemma4.safetensors", text);
  later.given["sound"] = {"true"};
  EXPECT_THAT(error_of([&] {
                const Model model(built_plugins(), later, "");
                model.build("conditioner", {{"batch", 1}, {"gemma4.length", 16}}, DType::f32);
              }),
              HasSubstr("expected audio_aggregate_embed.weight beside the clip's, found none"));
}

TEST(Ltx2, FullSizeAutoencoders) {
  for (const Ltx2Vae* size : {&full_ltx2_vae, &full_ltx23_vae}) {
    Shapes shapes = small_ltx2.shapes();
    add_ltx2_vae(shapes, "vae:", *size);
    EXPECT_NO_THROW(Described(plugin, shapes));
  }
}

TEST(Ltx2Sound, FullSizeGraphsUseEveryTensor) {
  for (const Ltx2Voice& size : {full_ltx2_voice, full_ltx23_voice}) {
    Shapes shapes;
    add_ltx2_sound_vae(shapes, "audio_vae:", full_ltx2_sound);
    add_ltx2_vocoder(shapes, size.second > 0 ? "vocoder:" : "vocoder:vocoder.", size);
    const Described model(plugin, shapes, std::map<std::string, std::string>{{"sound", "true"}});
    std::set<std::string> used;
    for (const auto& [role, sizes] : sound_roles)
      for (const auto& [name, value] : model.build(role, sizes).params) used.insert(name);
    for (const auto& [name, desc] : shapes)
      EXPECT_EQ(used.contains(name), name != "vocoder:mel_stft.stft_fn.inverse_basis") << name;
  }
}

}  // namespace
}  // namespace lh::test::ltx2_test
