// Chroma beyond its golden cases: every layout of files, what is wrong with them, text that is not there, and the
// published model by its key lists.
#include <gmock/gmock.h>

#include <set>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "passes/adapt.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/model_shapes.h"

namespace lh::test::chroma_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "chroma";
constexpr Chroma full{{3072, 4096, 19, 38}, 5120};
constexpr Radiance full_radiance{full};
const std::string approximator = "distilled_guidance_layer.";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes t5;
    add_t5(t5, "", small_chroma.text, 2, 50);
    return std::map<std::string, std::vector<Given>>{
        {"denoiser", filled(small_chroma.shapes())}, {"vae", golden_weights("vae_flux_encode")}, {"t5", filled(t5)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  ModelConfig config;
  for (const auto& [name, tensors] : components()) {
    const fs::path path = folder / (name + ".safetensors");
    write_file(path, tensors);
    if (name == "denoiser")
      config.name_or_path = path;
    else
      config.given[name + "_path"] = {path};
  }
  return config;
}

using Rename = std::function<std::string(const std::string&)>;

void write_one_file(const fs::path& path, const std::string& prefix, const Rename& rename = {}) {
  const std::map<std::string, std::string> prefixes{
      {"denoiser", prefix}, {"vae", "first_stage_model."}, {"t5", "text_encoders.t5xxl.transformer."}};
  std::vector<Given> all;
  for (const auto& [name, tensors] : components())
    for (const Given& t : tensors)
      all.push_back({prefixes.at(name) + (rename && name == "denoiser" ? rename(t.name) : t.name), t.tensor});
  write_file(path, all);
}

const Sizes small{{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 5}};
const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

HostTensor denoise(const Model& model) {
  return output_of(model, build_sample_graph(model, small, no_adapter, DType::f32), "output");
}

// ---- layouts

struct Layout {
  const char* name;
  std::function<void(const fs::path&)> write;  // to this path
  bool half = false;                           // in half precision
};

// As early repacks have the approximator.
std::string with_a_level(const std::string& name) {
  return name.starts_with(approximator) ? approximator + "0." + name.substr(approximator.size()) : name;
}

void write_folder(const fs::path& path, const std::string& variant = "", const Change& change = as_is) {
  write_directory(path, spec_of(plugin), components(), {"denoiser", "vae"}, variant, change);
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { write_one_file(p, "model.diffusion_model."); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { write_one_file(p, ""); }},
    {"early_repack", [](const fs::path& p) { write_one_file(p, "", with_a_level); }},
    {"folder", [](const fs::path& p) { write_folder(p); }},
    {"folder_of_a_variant", [](const fs::path& p) { write_folder(p, ".fp16", as_half); }, true},
};

class ChromaLayouts : public testing::TestWithParam<Layout> {};

TEST_P(ChromaLayouts, OpenAsTheSameModel) {
  const TempDir dir;
  const Model want(built_plugins(), write_separate(dir / "separate"), "");
  GetParam().write(dir / "model");
  ModelConfig config;
  config.name_or_path = dir / "model";
  const Model got(built_plugins(), config, "");
  EXPECT_EQ(got.id(), plugin);
  expect_same(got.checkpoint(), want.checkpoint(), GetParam().half ? as_half : as_is);
  if (!GetParam().half) {
    EXPECT_EQ(denoise(got).data, denoise(want).data);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ChromaLayouts, testing::ValuesIn(layouts),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- what does not fit

struct Wrong {
  friend void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }
  const char* name;
  const char* tensor;  // is missing, or has another shape
  Shape shape;
  const char* error;
};

const Wrong wrongs[] = {
    {"no_scale", "distilled_guidance_layer.norms.1.scale", {}, "missing tensor distilled_guidance_layer.norms.1.scale"},
    {"no_linear",
     "distilled_guidance_layer.layers.0.out_layer.weight",
     {},
     "missing tensor distilled_guidance_layer.layers.0.out_layer.weight [40, 40]"},
    {"wide_approximator",
     "distilled_guidance_layer.out_proj.weight",
     {128, 41},
     "distilled_guidance_layer.out_proj.weight: expected shape [128, 40], found [128, 41]"},
    {"odd_sinusoids",
     "distilled_guidance_layer.in_proj.weight",
     {40, 60},
     "distilled_guidance_layer.in_proj.weight: expected a multiple of 8 columns"},
    {"further_channels", "img_in.weight", {128, 96}, "img_in.weight: expected shape [128, 64], found [128, 96]"},
    {"a_block_tensor", "single_blocks.1.linear2.weight", {128, 639}, "expected shape [128, 640], found [128, 639]"},
    {"no_text_side", "double_blocks.0.txt_mlp.2.weight", {}, "missing tensor double_blocks.0.txt_mlp.2.weight"},
};

class ChromaWrong : public testing::TestWithParam<Wrong> {};

TEST_P(ChromaWrong, IsRefused) {
  Shapes shapes = small_chroma.shapes();
  if (GetParam().shape.rank() == 0)
    shapes.erase(GetParam().tensor);
  else
    shapes.at(GetParam().tensor).shape = GetParam().shape;
  try {
    const Described model(plugin, shapes);
    FAIL() << "was taken";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr(GetParam().error));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ChromaWrong, testing::ValuesIn(wrongs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Chroma, FilesThatDoNotBelongTogether) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  Shapes t5;
  add_t5(t5, "", 64, 1, 50);
  write_file(dir / "t5.safetensors", filled(t5));
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("txt_in.weight takes 192 columns, but t5 gives 64: the files do not belong together"));
}

// ---- text

// Runs the small model's denoiser on two samples whose text has `length` rows; `there` of the second are said to be.
HostTensor denoise_text(const Model& model, const HostTensor& text, const std::vector<int32_t>& mask) {
  const int64_t batch = text.desc.shape[0], length = text.desc.shape[1];
  Graph graph = build_sample_graph(model, {{"batch", batch}, {"height", 4}, {"width", 6}, {"text_length", length}},
                                   no_adapter, DType::f32);
  Device device(tested_device());
  const Weights weights(device, model.checkpoint(), graph);
  const Externals bound = weights.bind(graph);
  OwnedProgram program(device, std::move(graph), bound, "chroma test");
  program->set_input("latents", ramp({batch, 4, 6, 16}, 3));
  program->set_input("text", text);
  program->set_input("text_mask", HostTensor::from_ints({batch, length}, mask));
  program->set_input("timestep", floats({batch}, std::vector<float>(static_cast<size_t>(batch), 0.6f)));
  program->run();
  return program->output("output");
}

// Rows that are not there are as good as no rows.
TEST(Chroma, TextThatIsNotThereIsNotSeen) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  const int64_t width = small_chroma.text;
  const HostTensor longer = ramp({1, 7, width}, 1);
  HostTensor other = longer, shorter(Desc{DType::f32, {1, 3, width}});
  std::copy_n(longer.as<float>().begin(), 3 * width, shorter.as<float>().begin());
  std::ranges::fill(other.as<float>().subspan(static_cast<size_t>(3 * width)), 1000.0f);
  const HostTensor masked = denoise_text(model, longer, {1, 1, 1, 0, 0, 0, 0});
  EXPECT_EQ(denoise_text(model, other, {1, 1, 1, 0, 0, 0, 0}).data, masked.data);
  EXPECT_LT(relative_error(denoise_text(model, shorter, {1, 1, 1}), masked), 1e-6);
  EXPECT_GT(relative_error(denoise_text(model, longer, {1, 1, 1, 1, 0, 0, 0}), masked), 1e-4);
}

// ---- full size

TEST(Chroma, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full.shapes();
  EXPECT_EQ(shapes.size(), 643u);
  EXPECT_EQ(parameters_of(shapes), 8899983424);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 128}, {"text_length", 512}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 128, 16}));
  std::set<std::string> used, known;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) known.insert(name);
  EXPECT_EQ(used, known);  // no weight is left out
  const AdapterSelection selection({}, model.recipe(), 1);
  const std::vector<AdaptedModule> modules = adapt(graph, selection, true);
  EXPECT_EQ(modules.size(), 228u);
  for (const AdaptedModule& m : modules)
    EXPECT_TRUE(m.name.starts_with("double_blocks.") || m.name.starts_with("single_blocks.")) << m.name;
}

// ---- Radiance

struct WrongHead {
  const char* tensor;  // is missing, or has another shape
  Shape shape;
  const char* error;
};

TEST(ChromaRadiance, HeadsThatDoNotFitAreRefused) {
  const WrongHead heads[] = {
      {"img_in_patch.weight", {128, 3, 16, 8}, "img_in_patch.weight: expected patches as high as wide"},
      {"img_in_patch.weight", {100, 3, 16, 16}, "img_in_patch.weight: expected a multiple of 128 rows"},
      {"img_in_patch.bias", {}, "missing tensor img_in_patch.bias [128]"},
      {"nerf_image_embedder.embedder.0.weight", {8, 11}, "expected 3 columns and a square number of them, found 11"},
      {"nerf_blocks.0.param_generator.weight",
       {385, 128},
       "expected a multiple of 24 rows (three matrices), found 385"},
      {"nerf_blocks.1.norm.scale", {}, "missing tensor nerf_blocks.1.norm.scale [8]"},
      {"nerf_final_layer_conv.conv.weight", {3, 8, 1, 1}, "expected shape [3, 8, 3, 3], found [3, 8, 1, 1]"},
      {"__32x32__", {0}, "the experimental Chroma1-Radiance that sees its pictures at half their size (__32x32__"},
  };
  for (const WrongHead& head : heads) {
    SCOPED_TRACE(head.error);
    Shapes shapes = small_radiance.shapes();
    if (head.shape.rank() == 0)
      shapes.erase(head.tensor);
    else
      shapes[head.tensor] = {DType::bf16, head.shape};
    EXPECT_THAT(error_of([&] { const Described model(plugin, shapes); }), HasSubstr(head.error));
  }
}

// Patches go through the head some at a time: those of a picture end elsewhere among them in a batch of two.
TEST(ChromaRadiance, PartsOfTheHeadAreOnePicture) {
  const TempDir dir;
  write_small_radiance(dir / "model.safetensors");
  ModelConfig config;
  config.name_or_path = dir / "model.safetensors";
  const Model model(built_plugins(), config, "");
  constexpr int64_t height = 16 * 19, width = 16 * 28, length = 3;  // 532 patches, 512 at a time
  const auto run = [&](int64_t batch) {
    Graph graph =
        build_sample_graph(model, {{"batch", batch}, {"height", height}, {"width", width}, {"text_length", length}},
                           no_adapter, DType::f32);
    Device device(tested_device());
    const Weights weights(device, model.checkpoint(), graph);
    const Externals bound = weights.bind(graph);
    OwnedProgram program(device, std::move(graph), bound, "radiance test");
    const HostTensor pixels = ramp({2, height, width, 3}, 5), text = ramp({2, length, small_radiance.text}, 1);
    const auto last = [&](const HostTensor& of) {  // the last samples of two
      HostTensor rows(Desc{DType::f32, of.desc.shape.with(0, batch)});
      std::ranges::copy(std::span(of.data).last(rows.data.size()), rows.data.begin());
      return rows;
    };
    program->set_input("latents", last(pixels));
    program->set_input("text", last(text));
    program->set_input("text_mask", HostTensor::from_ints(
                                        {batch, length}, std::vector<int32_t>(static_cast<size_t>(batch * length), 1)));
    program->set_input("timestep", floats({batch}, std::vector<float>(static_cast<size_t>(batch), 0.6f)));
    program->run();
    return last(program->output("output"));
  };
  const HostTensor alone = run(1), second = run(2);
  HostTensor of_two(alone.desc);
  std::ranges::copy(std::span(second.data).last(of_two.data.size()), of_two.data.begin());
  EXPECT_LT(relative_error(of_two, alone), 1e-5);
}

TEST(ChromaRadiance, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_radiance.shapes();
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  EXPECT_EQ(model.recipe().variant, "radiance");
  EXPECT_TRUE(model.recipe().latents.pixels);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 1024}, {"width", 1024}, {"text_length", 512}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 1024, 1024, 3}));
  std::set<std::string> used, known;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) known.insert(name);
  EXPECT_EQ(used, known);  // no weight is left out
  const AdapterSelection selection({}, model.recipe(), 1);
  EXPECT_EQ(adapt(graph, selection, true).size(), 228u);
}

TEST(Chroma, PublishedKeyLists) {
  if (!fs::exists(key_lists() / "Chroma1-HD.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  EXPECT_EQ(key_list("Chroma1-HD"), full.shapes());
  const CheckpointSpec spec = spec_of(plugin);
  expect_maps(*spec.component("denoiser"), "Chroma1-HD.diffusers-transformer", "Chroma1-HD");
  expect_maps(*spec.component("vae"), "flux1.diffusers-vae", "ae");
  expect_maps(*spec.component("t5"), "flux1.diffusers-text_encoder_2", "t5xxl");
}

}  // namespace
}  // namespace lh::test::chroma_test
