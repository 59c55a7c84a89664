// Stable Diffusion 1 and 2 beyond their golden cases: layouts of files, models that look alike, what the files tell and
// what the user has to, and from which layer the text comes.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "compile/compile.h"
#include "graph/op.h"
#include "io/synthetic.h"
#include "passes/adapt.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/model_shapes.h"
#include "support/sd15_shapes.h"

namespace lh::test::sd15_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "sd15";

Shapes shapes_of(const std::vector<Given>& tensors, const std::string& prefix = "") {
  Shapes out;
  for (const Given& t : tensors) out[prefix + t.name] = {DType::bf16, t.tensor.desc.shape};
  return out;
}

const std::vector<Given>& unet() {
  static const std::vector<Given> tensors = golden_weights("sd15_locon_tiny");
  return tensors;
}

// The same with text of OpenCLIP's width.
Shapes second_unet() {
  Shapes out = shapes_of(unet());
  for (auto& [name, desc] : out)
    if (name.ends_with("attn2.to_k.weight") || name.ends_with("attn2.to_v.weight"))
      desc.shape = desc.shape.with(1, 1024);
  return out;
}

// ---- layouts of files

const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes clip;
    add_clip(clip, "", 64, 2, 50);
    return std::map<std::string, std::vector<Given>>{
        {"denoiser", unet()}, {"vae", golden_weights("vae_sd15_encode")}, {"clip", filled(clip)}};
  }();
  return all;
}

std::vector<Given> original_file(const std::string& text_prefix) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{
           {"denoiser", "model.diffusion_model."}, {"vae", "first_stage_model."}, {"clip", text_prefix}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, t.tensor});
  all.push_back({"cond_stage_model.transformer.text_model.embeddings.position_ids", counting({1, 77})});
  all.push_back({"alphas_cumprod", counting({10})});
  all.push_back({"model_ema.decay", counting(Shape{})});
  return all;
}

const Sizes sizes{{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 5}};
const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

TEST(Sd15, LayoutsOpenAsTheSameModel) {
  const TempDir dir;
  const std::string prefix = "cond_stage_model.transformer.";
  write_file(dir / "single.safetensors", original_file(prefix));
  const Model want(built_plugins(), single(dir / "single.safetensors"), "");
  EXPECT_EQ(want.id(), plugin);
  std::vector<Given> flat = original_file(prefix), half = flat;
  for (Given& t : flat)  // as the first programs wrote it
    if (const std::string level = prefix + "text_model."; t.name.starts_with(level)) t.name.erase(prefix.size(), 11);
  for (Given& t : half) t.tensor = as_half(t.tensor);
  write_file(dir / "flat.safetensors", flat);
  write_file(dir / "half.safetensors", half);
  write_file(dir / "bundle.safetensors", original_file("text_encoders.clip_l.transformer."));
  write_directory(dir / "folder", spec_of(plugin), components(), {"denoiser", "vae"}, "", as_is);
  write_directory(dir / "fp16", spec_of(plugin), components(), {"denoiser", "vae"}, ".fp16", as_half);
  for (const char* name : {"flat.safetensors", "bundle.safetensors", "folder", "half.safetensors", "fp16"}) {
    SCOPED_TRACE(name);
    const Model got(built_plugins(), single(dir / name), "");
    EXPECT_EQ(got.id(), plugin);
    const bool rounded = std::string(name) == "half.safetensors" || std::string(name) == "fp16";
    expect_same(got.checkpoint(), want.checkpoint(), rounded ? as_half : as_is);
    if (rounded) continue;
    const auto output = [&](const Model& model) {
      return output_of(model, build_sample_graph(model, sizes, no_adapter, DType::f32), "output");
    };
    EXPECT_EQ(output(got).data, output(want).data);
  }
}

// ---- models that look alike

TEST(Sd15, OtherModelsOfTheLayoutAreRefusedByName) {
  struct Refused {
    std::string change;  // a tensor ...
    Shape shape;         // ... that has this shape
    const char* reason;
  };
  const Refused rows[] = {
      {"input_blocks.0.0.weight", {64, 8, 3, 3}, "instruct-pix2pix (8 input channels"},
      {"input_blocks.0.0.weight", {64, 5, 3, 3}, "told depth, like Stable Diffusion 2 depth (5 input channels)"},
      {"input_blocks.0.0.weight", {64, 7, 3, 3}, "enlarges images, like Stable Diffusion x4 (7 input channels)"},
      {"input_hint_block.0.weight", {1}, "this is a ControlNet"},
      {"input_blocks.1.0.time_stack.in_layers.0.weight", {1}, "this is a video model"},
  };
  for (const auto& offered : built_plugins().models()) {
    if (offered.descriptor->id != std::string(plugin)) continue;
    for (const Refused& row : rows) {
      Shapes shapes = shapes_of(unet());
      shapes[row.change] = {DType::bf16, row.shape};
      const Probe said = probe(offered, shapes, nullptr);
      EXPECT_EQ(said.confidence, 0) << row.reason;
      EXPECT_THAT(said.words, HasSubstr(row.reason));
    }
    const Probe of_sdxl = probe(offered, small_unet.shapes(), nullptr);
    EXPECT_EQ(of_sdxl.confidence, 0);
    EXPECT_THAT(of_sdxl.words, HasSubstr("this is an SDXL model (text of width 192"));
    EXPECT_THAT(of_sdxl.words, HasSubstr("which plugin sdxl trains"));
  }
}

TEST(Sd15, FullSizeGraphsAndLoraModules) {
  struct Row {
    Shapes unet;
    const char* variant;
    int64_t parameters;
  };
  const Row rows[] = {{sd15_unet(768, true), "", 859520964},
                      {sd15_unet(768, true, 9), "", 859535364},
                      {sd15_unet(1024, false), "v_pred", 865910724},
                      {sd15_unet(1024, true), "epsilon", 865910724}};  // as sd-scripts saves it
  for (const Row& row : rows) {
    const Shapes& shapes = row.unet;
    EXPECT_EQ(shapes.size(), 686u);
    EXPECT_EQ(parameters_of(shapes), row.parameters);
    const Described model(plugin, shapes, row.variant);
    EXPECT_EQ(model.confidence(), 100);
    Graph graph = model.denoiser({{"batch", 1}, {"height", 64}, {"width", 64}, {"text_length", 77}});
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 64, 64, 4}));
    EXPECT_EQ(graph.params.size(), shapes.size());  // no weight is left out
    EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 192u);
    NetworkConfig network;
    network.conv = 4;
    const AdapterSelection all(network, model.recipe(), 1, shapes);
    size_t count = 0;
    for (const auto& [name, desc] : shapes)
      count += name.ends_with(".weight") && desc.shape.rank() > 1 && all(name.substr(0, name.size() - 7)) != nullptr;
    // 22 res blocks of two convolutions and a linear, 14 of them with a skip connection; 3 downsamples, 3 upsamples.
    EXPECT_EQ(count, 192u + 22 * 3 + 14 + 6);
  }
}

// ---- heads, which no shape tells

std::vector<int64_t> head_widths(const Graph& graph) {
  std::vector<int64_t> widths;
  for (const Node& node : graph.nodes)
    if (node.op->name == std::string("attention/1")) widths.push_back(graph.desc(node.inputs[0]).shape[3]);
  std::ranges::sort(widths);
  widths.erase(std::ranges::unique(widths).begin(), widths.end());
  return widths;
}

TEST(Sd15, HeadsAreEightOrSixtyFourWide) {
  EXPECT_EQ(head_widths(Described(plugin, shapes_of(unet())).denoiser(sizes)), (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(head_widths(Described(plugin, second_unet(), "epsilon").denoiser(sizes)), std::vector<int64_t>{64});
  const Sizes latents{{"batch", 1}, {"height", 64}, {"width", 64}, {"text_length", 77}};
  EXPECT_EQ(head_widths(Described(plugin, sd15_unet(768, true)).denoiser(latents)),
            (std::vector<int64_t>{40, 80, 160}));
}

// ---- what the model gives

TEST(Sd15, OfTheSecondTheUserSaysWhatItGives) {
  EXPECT_EQ(Described(plugin, shapes_of(unet())).recipe().variant, "epsilon");
  EXPECT_THAT(error_of([] { Described(plugin, second_unet()); }),
              HasSubstr("set model.variant to epsilon or to v_pred"));
  const Recipe base = Described(plugin, second_unet(), "epsilon").recipe(),
               velocity = Described(plugin, second_unet(), "v_pred").recipe(),
               first = Described(plugin, shapes_of(unet())).recipe();
  EXPECT_EQ(base.metadata.at("modelspec.architecture"), "stable-diffusion-v2-512/lora");
  EXPECT_EQ(velocity.metadata.at("modelspec.architecture"), "stable-diffusion-v2-768-v/lora");
  EXPECT_EQ(velocity.metadata.at("ss_base_model_version"), "sd_v2_v");
  EXPECT_EQ(velocity.objective, Objective::v_prediction);
  EXPECT_EQ(first.metadata.at("modelspec.architecture"), "stable-diffusion-v1/lora");
  EXPECT_EQ(first.metadata.at("ss_base_model_version"), "sd_v1");
  EXPECT_EQ(std::pair(base.family, first.family), (std::pair<std::string, std::string>("sd2", "sd15")));
}

TEST(Sd15, ASchedulerOfDiffusersSaysWhatItGives) {
  const TempDir dir;
  const std::map<std::string, std::string> schedulers = {
      {"epsilon", R"({"prediction_type": "epsilon", "steps_offset": 1})"},
      {"v_pred", R"({"prediction_type": "v_prediction", "rescale_betas_zero_snr": false})"},
      {"v_pred_ztsnr", R"({"rescale_betas_zero_snr": true, "prediction_type": "v_prediction"})"}};
  for (const auto& [variant, text] : schedulers) {
    const fs::path folder = dir / variant;
    write_directory(folder, spec_of(plugin), components(), {"denoiser", "vae"}, "", as_is);
    fs::create_directories(folder / "scheduler");
    put(folder / "scheduler" / "scheduler_config.json", text);
    EXPECT_EQ(Model(built_plugins(), single(folder), "").recipe().variant, variant);
  }
}

// ---- the text

// Names of an encoder's tensors in the graph of its text; the file has shapes alone.
std::set<std::string> used_of(int64_t width, int64_t layers, const std::string& skip) {
  const TempDir dir;
  Shapes clip;
  add_clip(clip, "", width, layers, 50);
  nlohmann::json list;
  for (const auto& [name, desc] : clip)
    list[name] = {"BF16", std::vector<int64_t>(desc.shape.dims().begin(), desc.shape.dims().end())};
  put(dir / "clip.json", nlohmann::json{{"tensors", list}}.dump());
  make_hollow_checkpoint(dir / "clip.json", dir / "clip.safetensors");
  ModelConfig config;
  config.given["clip_path"] = {dir / "clip.safetensors"};
  if (!skip.empty()) config.given["clip_skip"] = {skip};
  std::set<std::string> used;
  const Sizes at{{"batch", 1}, {"clip.length", 77}};
  for (const auto& [name, value] : Model(built_plugins(), config, plugin).build("conditioner", at, DType::f32).params)
    used.insert(name);
  return used;
}

TEST(Sd15, TextComesFromTheLayerThatTheModelWasMadeWith) {
  struct Row {
    int64_t width, layers;
    const char* skip;  // model.clip_skip
    int64_t used;
  };
  // Of 24 layers the second takes 23; a folder of diffusers has no more.
  for (const Row& row : {Row{64, 3, "", 3},
                         {64, 3, "1", 3},
                         {64, 3, "2", 2},
                         {1024, 24, "", 23},
                         {1024, 23, "", 23},
                         {1024, 24, "2", 22},
                         {1024, 23, "2", 22}}) {
    const std::set<std::string> used = used_of(row.width, row.layers, row.skip);
    EXPECT_EQ(std::ranges::count_if(used, [](const auto& name) { return name.ends_with("layer_norm1.weight"); }),
              row.used)
        << row.width << " " << row.layers << " " << row.skip;
    EXPECT_TRUE(used.contains("clip:text_model.final_layer_norm.weight"));
  }
  EXPECT_THAT(error_of([] { used_of(64, 3, "4"); }),
              HasSubstr("model.clip_skip: the text encoder has 3 layers, of which 4 leaves none"));
  EXPECT_THAT(error_of([] { used_of(64, 3, "1.5"); }), HasSubstr("expected a whole number of layers, found 1.5"));
}

}  // namespace
}  // namespace lh::test::sd15_test
