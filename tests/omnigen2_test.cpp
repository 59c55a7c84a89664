// OmniGen2 beyond its golden cases: every layout of files, refusals, prompts, texts of a batch, and the published model
// by its shapes.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "compile/adapter_selection.h"
#include "encode/text_encoding.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "support/device.h"
#include "support/layouts.h"
#include "support/log.h"
#include "support/model_shapes.h"
#include "support/omnigen2_shapes.h"
#include "support/paths.h"
#include "support/qwen_image_shapes.h"
#include "support/texts_apart.h"
#include "support/wrong_models.h"

namespace lh::test::omnigen2_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "omnigen2";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes qwen;
    add_qwen2_5(qwen, "", small_omnigen2.text, 1626);
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_omnigen2.shapes())},
                                                     {"vae", golden_weights("vae_flux_encode")},
                                                     {"qwen2_5_vl", filled(qwen)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  config.given["vae_path"] = {folder / "vae.safetensors"};
  config.given["qwen2_5_vl_path"] = {folder / "qwen2_5_vl.safetensors"};
  config.given["tokenizer_path"] = {std::string(source_dir()) + "/tests/data/qwen_small"};
  return config;
}

// ---- layouts

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser, const Change& change) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{
           {"denoiser", denoiser}, {"vae", "vae."}, {"qwen2_5_vl", "text_encoders.qwen25_3b.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  all.push_back({"text_encoders.qwen25_3b.logit_scale", counting(Shape{})});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

// The authors' folder: transformer, mllm, vae.
ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "OmniGen2Pipeline"})");
  return single(folder);
}

// The text encoder's file with what it sees with beside it.
ModelConfig with_seeing_encoder(const fs::path& folder) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors = components().at("qwen2_5_vl");
  tensors.push_back({"visual.patch_embed.proj.weight", counting({2, 2})});
  tensors.push_back({"lm_head.weight", counting({2, 2})});
  write_file(folder / "qwen2_5_vl.safetensors", tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_is); }},
    {"all_in_one_half", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_half); }, as_half},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"encoder_that_sees", with_seeing_encoder},
};

class OmniGen2Layouts : public testing::TestWithParam<Layout> {};

TEST_P(OmniGen2Layouts, OpenAsTheSameModel) {
  expect_same_model(plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
                    {{"denoiser", {{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 40}, {"reference", 1}}},
                     {"conditioner", {{"batch", 2}, {"qwen2_5_vl.length", 9}}},
                     {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 48}}},
                     {"vae.decode", {{"batch", 1}, {"height", 8}, {"width", 6}}}});
}

INSTANTIATE_TEST_SUITE_P(All, OmniGen2Layouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not OmniGen2, or not whole

const WrongModel wrongs[] = {
    {"further_channels",
     [](Shapes& s) {
       s["x_embedder.weight"].shape = {192, 132};
     },
     "x_embedder.weight: expected as many columns as norm_out.linear_2 has rows, 64 (patches of 2x2), found 132"},
    {"heads", [](Shapes& s) { s["layers.0.attn.norm_q.weight"].shape = {64}; },
     "layers.0.attn.norm_q.weight: expected a multiple of 6 (pairs on three rotary axes), found 64"},
    {"groups",
     [](Shapes& s) {
       s["layers.0.attn.to_k.weight"].shape = {100, 192};
     },
     "layers.0.attn.to_k.weight: expected heads of 96, each for as many of the 192 rows of to_q, found 100 rows"},
    {"no_refiner", [](Shapes& s) { s.erase("ref_image_refiner.0.attn.to_q.weight"); },
     "missing tensor ref_image_refiner.0.attn.to_q.weight"},
    {"values",
     [](Shapes& s) {
       s["layers.1.attn.to_v.weight"].shape = {192, 192};
     },
     "layers.1.attn.to_v.weight: expected shape [96, 192], found [192, 192]"},
    {"modulation",
     [](Shapes& s) {
       s["layers.0.norm1.linear.weight"].shape = {768, 96};
     },
     "layers.0.norm1.linear.weight: expected shape [768, 64], found [768, 96]"},
    {"text_width", [](Shapes& s) { add_qwen2_5(s, "qwen2_5_vl:", 96, 60); },
     "time_caption_embed.caption_embedder.0.weight takes 64 columns, but qwen2_5_vl gives 96: the files do not belong "
     "together"},
};

TEST(OmniGen2, WrongTensorsAreNamed) { expect_refused(plugin, small_omnigen2.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"boogu", [](Shapes& s) { add_linear(s, "double_stream_layers.0.img_instruct_attn.to_out.0", 8, 8); },
     "this is a Boogu model"},
};

TEST(OmniGen2, RelativesAreRefusedByName) { expect_files_refused({plugin}, small_omnigen2.shapes(), relatives); }

TEST(OmniGen2, MorePicturesThanItTellsApartAreRefused) {
  Shapes shapes = small_omnigen2.shapes();
  shapes["image_index_embedding"].shape = {1, 192};
  const Described model(plugin, shapes);
  EXPECT_THAT(
      error_of([&] {
        model.denoiser(
            {{"batch", 1}, {"height", 8}, {"width", 8}, {"text_length", 8}, {"reference", 1}, {"reference_2", 1}});
      }),
      HasSubstr("the model tells 1 reference pictures apart (image_index_embedding), found 2"));
}

// ---- prompts

// Two turns of the chat, the system's and the user's, without the beginning of an answer; all of them are read.
TEST(OmniGen2, PromptsStandInTheWholeTemplate) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  config.max_sequence_length = 160;
  const Model model(built_plugins(), config, "");
  const auto ids_of = [&](const std::string& prompt) {
    const Tokens tokens = *PromptTokens(model).of(prompt);
    const std::span<const int32_t> ids = tokens.at("qwen2_5_vl.input_ids").as<int32_t>(),
                                   mask = tokens.at("qwen2_5_vl.attention_mask").as<int32_t>();
    return std::vector<int32_t>{ids.begin(), ids.begin() + std::ranges::count(mask, 1)};
  };
  constexpr int32_t turn = 1601, turn_end = 1602;  // <|im_start|>, <|im_end|>
  const std::vector<int32_t> none = ids_of(""), some = ids_of("a cat");
  for (const std::vector<int32_t>& ids : {none, some}) {
    EXPECT_EQ(ids.front(), turn);
    EXPECT_EQ(std::ranges::count(ids, turn), 2);
    EXPECT_EQ(std::ranges::count(ids, turn_end), 2);
    EXPECT_EQ(ids.end()[-2], turn_end);
  }
  EXPECT_TRUE(std::equal(none.begin(), none.end() - 2, some.begin()));
  EXPECT_GT(some.size(), none.size());
}

// ---- texts of a batch

// Each sample of a batch is what it is alone, however many rows there are and whatever stands in those that are not
// there. Grids of 4 x 6 and, with odd sides, of 1 x 7 and 5 x 3 patches.
TEST(OmniGen2, TextsOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  expect_texts_apart(model, {{8, 12}, {2, 14}, {10, 6}});
}

// ---- full size

TEST(OmniGen2, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_omnigen2.shapes();
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser({{"batch", 1},
                                {"height", 128},
                                {"width", 96},
                                {"text_length", 256},
                                {"reference", 1},
                                {"reference_2", 1},
                                {"reference_3", 1}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 96, 16}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  Graph again = graph;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 286u);  // 32 + 2 of eight, 2 of seven
  NetworkConfig with_references;
  with_references.target_modules = {R"((layers|.*_refiner)\..*)"};
  EXPECT_EQ(adapt(again, AdapterSelection(with_references, model.recipe(), 1), true).size(), 302u);
}

// Times of sampling are shifted by sqrt(tokens) / 20, as the authors do.
TEST(OmniGen2, ShiftIsThatOfTheAuthors) {
  const auto& shift = Described(plugin, full_omnigen2.shapes()).recipe().timestep.resolution_shift;
  for (const int64_t tokens : {400, 1024, 4096, 9216})
    EXPECT_NEAR(std::exp(shift->mu(tokens)), std::sqrt(static_cast<double>(tokens)) / 20, 1e-9) << tokens;
}

}  // namespace
}  // namespace lh::test::omnigen2_test
