// `inspect` of model files: family, variant, layout and parts, what is missing and where to give it; encoders alone.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "io/lora_seal.h"
#include "io/record.h"
#include "io/synthetic.h"
#include "io/weight_files.h"
#include "plugin/inspect_checkpoint.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::inspect_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const ComponentReport& part_of(const CheckpointReport& report, const char* name) {
  const auto found = std::ranges::find(report.components, name, &ComponentReport::name);
  if (found == report.components.end()) throw std::runtime_error(std::string("no component ") + name);
  return *found;
}

TEST(Inspect, AModelSaysWhatItHasAndWhatIsMissing) {
  const CheckpointReport report = inspect_checkpoint(built_plugins(), toy_folder() / "flux_toy.safetensors");
  EXPECT_EQ(report.plugin, "flux");
  EXPECT_EQ(report.family, "flux");
  EXPECT_EQ(report.objective, "flow");
  EXPECT_EQ(report.layout, "single file, original names");
  EXPECT_EQ(report.problem, "");
  const Safetensors file(toy_folder() / "flux_toy.safetensors");
  int64_t parameters = 0;
  for (const StoredTensor& t : file.tensors()) parameters += t.desc.shape.numel();
  const ComponentReport& denoiser = part_of(report, "denoiser");
  EXPECT_TRUE(denoiser.found);
  EXPECT_EQ(denoiser.tensors, static_cast<int64_t>(file.tensors().size()));
  EXPECT_EQ(denoiser.parameters, parameters);
  EXPECT_EQ(denoiser.fp8, "");
  EXPECT_FALSE(part_of(report, "t5").found);
  const std::string text = report_text(report);
  EXPECT_THAT(text, HasSubstr("t5        not in it: model.t5_path\n"));
  const nlohmann::json json = report_json(report);
  EXPECT_EQ(json["components"][0]["tensors"], denoiser.tensors);
  EXPECT_EQ(json["components"][1]["config"], "model.vae_path");
}

TEST(Inspect, AnAllInOneFileWithFp8) {
  const TempDir dir;
  std::vector<Given> all;
  for (const Given& t : tensors_of(toy_folder() / "flux_toy.safetensors")) {
    const bool weight = t.tensor.desc.shape.rank() == 2;
    all.push_back({"model.diffusion_model." + t.name, weight ? as_type(t.tensor, DType::f8_e4m3) : t.tensor});
    if (weight && t.name == "txt_in.weight")
      all.push_back({"model.diffusion_model.txt_in.scale_weight", floats(Shape{}, {0.5f})});
  }
  for (const Given& t : tensors_of(toy_folder() / "ae.safetensors")) all.push_back({"vae." + t.name, t.tensor});
  for (const Given& t : tensors_of(toy_folder() / "t5xxl.safetensors"))
    all.push_back({"text_encoders.t5xxl.transformer." + t.name,
                   t.tensor.desc.shape.rank() == 2 ? as_type(t.tensor, DType::f8_e4m3) : t.tensor});
  write_file(dir / "all.safetensors", all);
  const CheckpointReport report = inspect_checkpoint(built_plugins(), dir / "all.safetensors");
  EXPECT_EQ(report.layout, "single file, original names behind model.diffusion_model.");
  EXPECT_EQ(part_of(report, "denoiser").fp8, "scaled");
  EXPECT_EQ(part_of(report, "t5").fp8, "plain");
  EXPECT_GT(part_of(report, "t5").dtypes.at("F8_E4M3"), 0);
  EXPECT_TRUE(part_of(report, "vae").found);
  EXPECT_FALSE(part_of(report, "clip_l").found);
}

TEST(Inspect, AModelThatItsPluginDoesNotOpen) {
  const TempDir dir;
  std::vector<Given> tensors = tensors_of(toy_folder() / "flux_toy.safetensors");
  std::erase_if(tensors, [](const Given& t) { return t.name == "final_layer.linear.bias"; });
  write_file(dir / "model.safetensors", tensors);
  const CheckpointReport report = inspect_checkpoint(built_plugins(), dir / "model.safetensors");
  EXPECT_EQ(report.plugin, "flux");
  EXPECT_THAT(report_text(report), HasSubstr("cannot be opened: missing tensor final_layer.linear.bias"));
}

TEST(Inspect, EncodersAlone) {
  struct Row {
    const char* file;
    const char* component;
    const char* key;
    std::vector<const char*> plugins;
    size_t parts = 1;  // components whose file it could be, the named one first
  };
  const Row rows[] = {
      {"ae.safetensors", "vae", "vae_path", {"chroma", "flux", "hidream", "lumina2", "omnigen2", "sd35", "z_image"}},
      {"clip_l.safetensors",
       "clip_l",
       "clip_path",
       {"flux", "hunyuan_video1", "sd35", "sdxl"},
       2},  // and of sd15, which calls it otherwise
      {"t5xxl.safetensors", "t5", "t5_path", {"chroma", "flux", "hidream", "sd35"}, 2}};  // and byt5 of hunyuan_image
  for (const Row& row : rows) {
    const CheckpointReport report = inspect_checkpoint(built_plugins(), toy_folder() / row.file);
    EXPECT_EQ(report.plugin, "") << row.file;
    ASSERT_EQ(report.parts.size(), row.parts) << row.file;
    EXPECT_EQ(report.parts[0].component, row.component);
    EXPECT_EQ(report.parts[0].config_key, row.key);
    EXPECT_THAT(report.parts[0].plugins, testing::ElementsAreArray(row.plugins)) << row.file;
    EXPECT_THAT(report_text(report), HasSubstr("the file does not say whose it is")) << row.file;
  }
}

TEST(Inspect, RelativesAndStrangers) {
  const TempDir dir;
  write_file(dir / "chroma.safetensors", {{"double_blocks.0.img_attn.qkv.weight", counting({6, 2})},
                                          {"distilled_guidance_layer.in_proj.weight", counting({2, 2})}});
  EXPECT_THAT(report_text(inspect_checkpoint(built_plugins(), dir / "chroma.safetensors")),
              HasSubstr("  flux: this is a Chroma model"));
  write_file(dir / "other.safetensors", {{"a.weight", counting({2, 2})}});
  EXPECT_EQ(report_text(inspect_checkpoint(built_plugins(), dir / "other.safetensors")),
            "  no model plugin knows it\n");
}

// Published models, as files with their keys and nothing in them.
TEST(Inspect, PublishedFiles) {
  struct Row {
    const char* list;
    const char* plugin;
    const char* variant;
    int64_t tensors, parameters;  // of the denoiser
  };
  const Row rows[] = {{"flux1-dev", "flux", "dev", 780, 11901408320},
                      {"flux1-schnell", "flux", "schnell", 776, 11891178560},
                      {"flux1-dev.diffusers-transformer", "flux", "dev", 780, 11901408320},
                      {"flux2-dev", "flux2", "dev", 299, 32223281152},
                      {"flux2-klein-4b", "flux2", "klein-base-4b", 149, 3875544576},
                      {"flux2-klein-9b.diffusers-transformer", "flux2", "klein-base-9b", 201, 9078581248},
                      {"sd3.5_large", "sd35", "large", 923, 8146280768},
                      {"sd3.5_medium", "sd35", "medium", 665, 2469663936},
                      {"sd3.5_medium.diffusers-transformer", "sd35", "medium", 665, 2469663936},
                      {"sd_xl_base_1.0", "sdxl", "epsilon", 1680, 2567463684},
                      {"qwen_image", "qwen_image", "base", 1933, 20430401088},
                      {"qwen_image.diffusers-transformer", "qwen_image", "base", 1933, 20430401088},
                      {"z_image", "z_image", "base", 453, 6154908736},
                      {"z_image.diffusers-transformer", "z_image", "base", 453, 6154908736}};
  if (!fs::exists(key_lists() / "sd3.5_large.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  const TempDir dir;
  for (const Row& row : rows) {
    const fs::path file = dir / (std::string(row.list) + ".safetensors");
    make_hollow_checkpoint(key_lists() / (std::string(row.list) + ".json"), file);
    const CheckpointReport report = inspect_checkpoint(built_plugins(), file);
    EXPECT_EQ(report.plugin, row.plugin) << row.list;
    EXPECT_EQ(report.variant, row.variant) << row.list;
    EXPECT_EQ(report.problem, "") << row.list;
    EXPECT_EQ(part_of(report, "denoiser").tensors, row.tensors) << row.list;
    EXPECT_EQ(part_of(report, "denoiser").parameters, row.parameters) << row.list;
  }
}

// A header of 65536 tensors takes a moment to check: once, and not for each component of each plugin.
TEST(Inspect, AFileIsReadOnceForAllPlugins) {
  const TempDir dir;
  const fs::path path = dir / "other.safetensors";
  write_file(path, {{"a", counting({2})}});
  int opened = 0;
  set_read_fault_hook([&](const char* call, const fs::path& file) {
    opened += std::string_view(call) == "open_read" && file == path;
    return 0;
  });
  FileCache cache;
  const FilePtr open = cache.open(path);
  inspect_checkpoint(built_plugins(), path);
  EXPECT_EQ(opened, 1);
  write_file(path, {{"b", counting({3})}});  // another file under the name
  EXPECT_NE(FileCache().open(path)->find("b"), nullptr);
  set_read_fault_hook({});
  EXPECT_EQ(opened, 2);
}

TEST(Inspect, AFolderOfSingleFilesIsNoModel) {
  const HostResult result = run_host({"inspect", toy_folder().string()});
  EXPECT_EQ(result.code, 3) << result.output;
  EXPECT_THAT(result.output, HasSubstr("Give one of them: ae.safetensors, clip_l.safetensors, flux_toy.safetensors"));
}

// Its tensors are named as those of a LoRA, with the optimizer's numbers among them.
TEST(Inspect, ATrainingStateIsNoLora) {
  const TempDir dir;
  const fs::path path = dir / "000000004.safetensors";
  const HostTensor down = counting({2, 4}), up = counting({4, 2});
  write_record(path, {"state/1", "4"},
               {{"m/a.lora_down.weight", down.desc, down.data.data()}, {"m/a.lora_up.weight", up.desc, up.data.data()}},
               {});
  EXPECT_THAT(error_of([&] { check_lora_seal(*FileCache().open(path)); }), HasSubstr("not a LoRA: it is a training"));
  const HostResult shown = run_host({"inspect", path.string()});
  EXPECT_EQ(shown.code, 0) << shown.output;
  EXPECT_THAT(shown.output, AllOf(HasSubstr("a training state of step 4, from which"), Not(HasSubstr("LoRA: "))));
  const HostResult resized = run_host({"resize", path.string(), "--rank", "1", "--out", (dir / "x").string()});
  EXPECT_EQ(resized.code, 3) << resized.output;
  EXPECT_THAT(resized.output, HasSubstr("not a LoRA: it is a training state of step 4"));
}

TEST(Inspect, TheCommandPrintsIt) {
  const HostResult result = run_host({"inspect", (toy_folder() / "flux_toy.safetensors").string()});
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("model of plugin flux: single file, original names\n    family flux, variant "));
}

}  // namespace
}  // namespace lh::test::inspect_test
