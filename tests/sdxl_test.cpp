// SDXL beyond its golden cases: every layout of files, relatives that are taken and others that are refused, what the
// model predicts, and the published model by its key lists.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "compile/compile.h"
#include "io/synthetic.h"
#include "passes/adapt.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/model_shapes.h"

namespace lh::test::sdxl_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "sdxl";

const Unet full{320, 2048, 2816, 2, {0, 0, 2, 2, 10, 10}, 10, {10, 10, 10, 2, 2, 2, 0, 0, 0}};

// ---- the UNet

struct Relative {
  const char* name;
  Unet unet;
  size_t modules;  // of the default LoRA: 2 + 10 depth for each transformer
};

const Relative relatives[] = {
    {"sdxl", full, 722},
    {"ssd_1b", {320, 2048, 2816, 2, {0, 0, 2, 2, 4, 4}, 0, {4, 4, 10, 2, 1, 1, 0, 0, 0}}, 2 * 10 + 10 * 34},
    {"vega", {320, 2048, 2816, 2, {0, 0, 1, 1, 2, 2}, 0, {2, 2, 2, 1, 1, 1, 0, 0, 0}}, 2 * 10 + 10 * 15},
    {"koala_700m", {320, 2048, 2816, 1, {0, 2, 5}, -1, {5, 5, 2, 2, 0, 0}}, 2 * 6 + 10 * 21},
    {"koala_1b", {320, 2048, 2816, 1, {0, 2, 6}, 6, {6, 6, 2, 2, 0, 0}}, 2 * 7 + 10 * 30},
};

TEST(Sdxl, FullSizeGraphsAndLoraModules) {
  EXPECT_EQ(full.shapes().size(), 1680u);
  EXPECT_EQ(parameters_of(full.shapes()), 2567463684);
  for (const Relative& row : relatives) {
    const Shapes shapes = row.unet.shapes();
    const Described model(plugin, shapes);
    EXPECT_EQ(model.confidence(), 100) << row.name;
    Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 128}, {"text_length", 77}});
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 128, 4})) << row.name;
    std::set<std::string> used, known;
    for (const auto& [name, value] : graph.params) used.insert(name);
    for (const auto& [name, desc] : shapes) known.insert(name);
    EXPECT_EQ(used, known) << row.name;  // no weight is left out
    const AdapterSelection selection({}, model.recipe(), 1);
    EXPECT_EQ(adapt(graph, selection, true).size(), row.modules) << row.name;
  }
}

TEST(Sdxl, PublishedKeyLists) {
  if (!fs::exists(key_lists() / "sd_xl_base_1.0.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  EXPECT_EQ(key_list("sd_xl_base_1.0"), full.shapes());
  const CheckpointSpec spec = spec_of(plugin);
  expect_maps(*spec.component("denoiser"), "sdxl.diffusers-unet", "sd_xl_base_1.0");
  expect_maps(*spec.component("vae"), "sdxl.diffusers-vae", "sdxl_vae");
  expect_maps(*spec.component("clip_l"), "sdxl.diffusers-text_encoder", "clip_l");
  expect_maps(*spec.component("clip_g"), "sdxl.diffusers-text_encoder_2", "clip_g");
}

// Files of the first UNets of this layout have 1x1 convolutions where later ones have linears.
TEST(Sdxl, ProjectionsMayBeConvolutions) {
  Shapes shapes = small_unet.shapes();
  for (auto& [name, desc] : shapes)
    if (name.ends_with("proj_in.weight") || name.ends_with("proj_out.weight"))
      desc.shape = Shape{desc.shape[0], desc.shape[1], 1, 1};
  const Described model(plugin, shapes);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 8}, {"width", 8}, {"text_length", 5}});
  EXPECT_EQ(graph.params.size(), shapes.size());
}

TEST(Sdxl, LatentsHaveToBeHalvedTwice) {
  const Described model(plugin, small_unet.shapes());
  try {
    model.denoiser({{"batch", 1}, {"height", 8}, {"width", 6}, {"text_length", 5}});
    FAIL() << "was built";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("latents [1, 8, 6, 4] are halved 2 times: height and width must be multiples of 4"));
  }
}

struct Broken {
  const char* erase;  // all names that start with this
  const char* change;
  Shape shape;
  const char* error;
};

const Broken broken[] = {
    {"out.2.weight", "", {}, "missing tensor out.2.weight [*, 32, 3, 3]"},
    {"input_blocks.4.0.skip_connection",
     "",
     {},
     "missing tensor input_blocks.4.0.skip_connection.weight [64, 32, 1, 1]"},
    {"input_blocks.5.", "", {}, "input_blocks.5 is missing, but input_blocks.6 is there"},
    {"output_blocks.8.", "", {}, "missing block output_blocks.8, which joins the result of input_blocks.0"},
    {"output_blocks.5.2.", "", {}, "output_blocks.6 gets images of 1/2^1 of the size, but input_blocks.2"},
    {"output_blocks.3.1.transformer_blocks.0.norm1",
     "",
     {},
     "missing tensor output_blocks.3.1.transformer_blocks.0.norm1.weight"},
    {"",
     "middle_block.1.transformer_blocks.0.attn2.to_k.weight",
     {128, 200},
     "middle_block.1.transformer_blocks.0.attn2.to_k.weight: expected shape [128, 192], found [128, 200]"},
    {"",
     "output_blocks.0.0.in_layers.2.weight",
     {128, 250, 3, 3},
     "output_blocks.0.0.in_layers.2.weight: expected shape [*, 256, 3, 3], found [128, 250, 3, 3]"},
    {"", "label_emb.0.2.weight", {128, 64}, "label_emb.0.2.weight: expected shape [128, 128], found [128, 64]"},
};

TEST(Sdxl, TensorsThatDoNotFitAreNamed) {
  for (const Broken& row : broken) {
    Shapes shapes = small_unet.shapes();
    if (*row.erase != '\0') std::erase_if(shapes, [&](const auto& item) { return item.first.starts_with(row.erase); });
    if (*row.change != '\0') shapes.at(row.change).shape = row.shape;
    try {
      const Described model(plugin, shapes);
      ADD_FAILURE() << row.error;
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr(row.error));
    }
  }
}

// ---- models that look alike

struct Refused {
  const char* name;
  Unet unet;
  std::vector<std::string> extra;  // names of further tensors
  const char* reason;
};

Unet changed(int64_t channels, int64_t context, int64_t label, int64_t in = 4) {
  Unet unet = full;
  unet.channels = channels, unet.context = context, unet.label = label, unet.in = in;
  return unet;
}

const Refused refused[] = {
    {"refiner", changed(384, 1280, 2560), {}, "this is an SDXL refiner (384 channels, text of width 1280)"},
    {"sd1",
     changed(320, 768, 0),
     {},
     "this is a Stable Diffusion 1.x model (text of width 768, no label_emb), which plugin sd15"},
    {"sd2",
     changed(320, 1024, 0),
     {},
     "this is a Stable Diffusion 2.x model (text of width 1024, no label_emb), which plugin sd15"},
    {"unclip", changed(320, 1024, 2048), {}, "this is an unCLIP model"},
    {"other_without_label", changed(320, 640, 0), {}, "this is a UNet without label_emb (text of width 640)"},
    {"video", changed(320, 1024, 768, 8), {"input_blocks.1.0.time_stack.in_layers.0.weight"}, "this is a video model"},
    {"video_of_diffusers", changed(320, 1024, 768, 8), {}, "this is a video model"},
    {"control", changed(320, 2048, 2816), {"input_hint_block.0.weight"}, "this is a ControlNet"},
    {"edit", changed(320, 2048, 2816, 8), {}, "instruct-pix2pix (8 input channels"},
    {"five_channels", changed(320, 2048, 2816, 5), {}, "this UNet takes 5 channels; 4 are latents"},
    {"kolors", changed(320, 2048, 5632), {}, "this is a Kolors model"},
    {"other_text", changed(320, 4096, 2816), {}, "this UNet takes text of width 4096 and a label_emb of width 2816"},
    {"playground", full, {"edm_mean", "edm_std"}, "Playground 2.5 (tensors edm_mean and edm_std)"},
    {"cosxl", full, {"edm_vpred.sigma_max"}, "CosXL (tensor edm_vpred.sigma_max)"},
};

TEST(Sdxl, OtherModelsOfTheLayoutAreRefusedByName) {
  for (const auto& offered : built_plugins().models()) {
    if (offered.descriptor->id != std::string(plugin)) continue;
    for (const Refused& row : refused) {
      Shapes shapes = row.unet.shapes();
      for (const std::string& name : row.extra) shapes[name] = {DType::f32, {1}};
      const Probe said = probe(offered, shapes, nullptr);
      EXPECT_EQ(said.confidence, 0) << row.name;
      EXPECT_THAT(said.words, HasSubstr(row.reason)) << row.name;
    }
  }
}

// ---- what the model predicts

struct VariantCase {
  std::vector<std::string> markers;
  const char* asked;    // model.variant
  const char* variant;  // what it is taken as; "" = refused ...
  const char* error = "";
};

const VariantCase variant_cases[] = {
    {{}, "", "epsilon"},
    {{}, "epsilon", "epsilon"},
    {{}, "v_pred", "v_pred"},
    {{}, "v_pred_ztsnr", "v_pred_ztsnr"},
    {{"v_pred"}, "", "v_pred"},
    {{"v_pred"}, "v_pred", "v_pred"},
    {{"v_pred"}, "v_pred_ztsnr", "v_pred_ztsnr"},
    {{"v_pred", "ztsnr"}, "", "v_pred_ztsnr"},
    {{"v_pred", "ztsnr"}, "v_pred_ztsnr", "v_pred_ztsnr"},
    {{"v_pred"}, "epsilon", "", "variant is epsilon, but the checkpoint has the tensor v_pred: it is a v_pred model"},
    {{"v_pred", "ztsnr"}, "v_pred", "", "variant is v_pred, but the checkpoint has the tensor ztsnr beside v_pred"},
};

TEST(Sdxl, VariantsAreToldByMarkersAndSetting) {
  for (const VariantCase& row : variant_cases) {
    Shapes shapes = small_unet.shapes();
    for (const std::string& name : row.markers) shapes[name] = {DType::f32, {0}};
    try {
      const Described model(plugin, shapes, row.asked);
      const Recipe recipe = model.recipe();
      EXPECT_EQ(recipe.variant, row.variant);
      const bool v = recipe.variant != "epsilon";
      EXPECT_EQ(recipe.objective, v ? Objective::v_prediction : Objective::epsilon);
      EXPECT_EQ(recipe.metadata.at("modelspec.prediction_type"), v ? "v" : "epsilon");
      EXPECT_EQ(recipe.metadata.at("ss_base_model_version"), "sdxl_base_v1-0");
    } catch (const std::runtime_error& e) {
      EXPECT_NE(*row.error, '\0') << e.what();
      EXPECT_THAT(e.what(), HasSubstr(row.error));
    }
  }
}

// ---- layouts of files

// A whole small model whose parts fit each other: canonical tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes clip_l, clip_g;
    add_clip(clip_l, "", 64, 2, 50);
    add_clip(clip_g, "", 128, 2, 50);
    clip_g["text_projection.weight"] = {DType::bf16, {128, 128}};
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_unet.shapes())},
                                                     {"vae", golden_weights("vae_sdxl_encode")},
                                                     {"clip_l", filled(clip_l)},
                                                     {"clip_g", filled(clip_g)}};
  }();
  return all;
}

HostTensor joined(const std::vector<HostTensor>& parts) {
  HostTensor out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    out.data.insert(out.data.end(), parts[i].data.begin(), parts[i].data.end());
    out.desc.shape = out.desc.shape.with(0, out.desc.shape[0] + parts[i].desc.shape[0]);
  }
  return out;
}

HostTensor transposed(const HostTensor& stored) {
  const HostTensor t = as_type(stored, DType::f32);
  const int64_t rows = t.desc.shape[0], columns = t.desc.shape[1];
  HostTensor out(Desc{DType::f32, {columns, rows}});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out.as<float>()[static_cast<size_t>(c * rows + r)] = t.as<float>()[static_cast<size_t>(r * columns + c)];
  return as_type(out, stored.desc.dtype);
}

// A text encoder under the names of OpenCLIP.
std::vector<Given> in_openclip(const std::vector<Given>& clip) {
  const auto tensor = [&](const std::string& name) { return std::ranges::find(clip, name, &Given::name)->tensor; };
  std::vector<Given> out{{"token_embedding.weight", tensor("text_model.embeddings.token_embedding.weight")},
                         {"positional_embedding", tensor("text_model.embeddings.position_embedding.weight")},
                         {"text_projection", transposed(tensor("text_projection.weight"))},
                         {"logit_scale", counting(Shape{})}};
  for (const char* suffix : {"weight", "bias"})
    out.push_back({fmt::format("ln_final.{}", suffix), tensor(fmt::format("text_model.final_layer_norm.{}", suffix))});
  for (int i = 0; i < 2; ++i) {
    const std::string from = fmt::format("text_model.encoder.layers.{}.", i),
                      to = fmt::format("transformer.resblocks.{}.", i);
    for (const std::string suffix : {"weight", "bias"}) {
      out.push_back({to + "attn.in_proj_" + suffix,
                     joined({tensor(from + "self_attn.q_proj." + suffix), tensor(from + "self_attn.k_proj." + suffix),
                             tensor(from + "self_attn.v_proj." + suffix)})});
      for (const auto& [theirs, ours] : std::map<std::string, std::string>{{"attn.out_proj.", "self_attn.out_proj."},
                                                                           {"ln_1.", "layer_norm1."},
                                                                           {"ln_2.", "layer_norm2."},
                                                                           {"mlp.c_fc.", "mlp.fc1."},
                                                                           {"mlp.c_proj.", "mlp.fc2."}})
        out.push_back({to + theirs + suffix, tensor(from + ours + suffix)});
    }
  }
  return out;
}

std::vector<Given> behind(const std::string& prefix, std::vector<Given> tensors) {
  for (Given& t : tensors) t.name.insert(0, prefix);
  return tensors;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  ModelConfig config;
  for (const auto& [name, key] : std::map<std::string, std::string>{
           {"denoiser", ""}, {"vae", "vae_path"}, {"clip_l", "clip_path"}, {"clip_g", "clip_g_path"}}) {
    const fs::path path = folder / (name + ".safetensors");
    write_file(path, components().at(name));
    if (key.empty())
      config.name_or_path = path;
    else
      config.given[key] = {path};
  }
  return config;
}

// The published single file, with what such files hold beside the model.
std::vector<Given> original_file(std::vector<Given> unet) {
  std::vector<Given> all = behind("model.diffusion_model.", std::move(unet));
  const auto add = [&](std::vector<Given> more) { all.insert(all.end(), more.begin(), more.end()); };
  add(behind("first_stage_model.", components().at("vae")));
  add(behind("conditioner.embedders.0.transformer.", components().at("clip_l")));
  add({{"conditioner.embedders.0.transformer.text_model.embeddings.position_ids", counting({1, 77})}});
  add(behind("conditioner.embedders.1.model.", in_openclip(components().at("clip_g"))));
  add({{"denoiser.sigmas", counting({10})},
       {"alphas_cumprod", counting({10})},
       {"model_ema.decay", counting(Shape{})}});
  return all;
}

std::vector<Given> unet_of_diffusers() {
  std::vector<Given> out;
  const CheckpointSpec spec = spec_of(plugin);
  for (const Given& t : components().at("denoiser"))
    for (Given& renamed : in_diffusers(*spec.component("denoiser"), t, components().at("denoiser")))
      out.push_back(std::move(renamed));
  return out;
}

struct Layout {
  const char* name;
  std::function<void(const fs::path&)> write;  // to this path
  bool half = false;                           // in half precision
};

const Layout layouts[] = {
    {"original", [](const fs::path& p) { write_file(p, original_file(components().at("denoiser"))); }},
    {"original_half",
     [](const fs::path& p) {
       std::vector<Given> all = original_file(components().at("denoiser"));
       for (Given& t : all) t.tensor = as_half(t.tensor);
       write_file(p, all);
     },
     true},
    {"unet_of_diffusers_behind_a_prefix", [](const fs::path& p) { write_file(p, original_file(unet_of_diffusers())); }},
    {"bundle_of_text_encoders",
     [](const fs::path& p) {
       std::vector<Given> all = behind("diffusion_model.", components().at("denoiser"));
       for (const auto& [name, prefix] :
            std::map<std::string, std::string>{{"vae", "vae."},
                                               {"clip_l", "text_encoders.clip_l.transformer."},
                                               {"clip_g", "text_encoders.clip_g.transformer."}})
         for (Given& t : behind(prefix, components().at(name))) all.push_back(std::move(t));
       write_file(p, all);
     }},
    {"folder",
     [](const fs::path& p) {
       write_directory(p, spec_of(plugin), components(), {"denoiser", "vae"}, "", as_is);
     }},
    {"folder_of_a_variant",
     [](const fs::path& p) {
       write_directory(p, spec_of(plugin), components(), {"denoiser", "vae"}, ".fp16", as_half);
     },
     true},
    {"folder_of_transformers_5",
     [](const fs::path& p) {
       write_directory(p, spec_of(plugin), components(), {"denoiser", "vae"}, "", as_is);
       for (const auto& [name, folder] :
            std::map<std::string, std::string>{{"clip_l", "text_encoder"}, {"clip_g", "text_encoder_2"}}) {
         std::vector<Given> flat = components().at(name);
         for (Given& t : flat)
           if (t.name.starts_with("text_model.")) t.name.erase(0, 11);
         write_file(p / folder / "model.safetensors", flat);
       }
     }},
};

const Sizes sizes{{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 5}};
const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

const Sizes both_lengths{{"batch", 1}, {"clip_l.length", 77}, {"clip_g.length", 77}};

std::vector<HostTensor> outputs(const Model& model) {
  return {output_of(model, build_sample_graph(model, sizes, no_adapter, DType::f32), "output"),
          output_of(model, model.build("conditioner", both_lengths, DType::f32), "text"),
          output_of(model, model.build("conditioner", both_lengths, DType::f32), "pooled")};
}

class SdxlLayouts : public testing::TestWithParam<Layout> {};

TEST_P(SdxlLayouts, OpenAsTheSameModel) {
  const TempDir dir;
  const Model want(built_plugins(), write_separate(dir / "separate"), "");
  GetParam().write(dir / "model");
  const Model got(built_plugins(), single(dir / "model"), "");
  EXPECT_EQ(got.id(), plugin);
  EXPECT_EQ(got.recipe().variant, "epsilon");
  expect_same(got.checkpoint(), want.checkpoint(), GetParam().half ? as_half : as_is);
  if (GetParam().half) return;
  const std::vector<HostTensor> a = outputs(got), b = outputs(want);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].data, b[i].data) << i;
}

INSTANTIATE_TEST_SUITE_P(All, SdxlLayouts, testing::ValuesIn(layouts),
                         [](const auto& info) { return std::string(info.param.name); });

// Marker tensors of real files have no elements and stand beside the prefix.
TEST(Sdxl, MarkersOfASingleFileAreSeen) {
  const TempDir dir;
  std::vector<Given> all = original_file(components().at("denoiser"));
  all.push_back({"v_pred", HostTensor(Desc{DType::f32, {0}})});
  all.push_back({"ztsnr", HostTensor(Desc{DType::f32, {0}})});
  write_file(dir / "v.safetensors", all);
  EXPECT_EQ(Model(built_plugins(), single(dir / "v.safetensors"), "").recipe().variant, "v_pred_ztsnr");
  all.push_back({"edm_vpred.sigma_max", counting({1})});
  write_file(dir / "edm.safetensors", all);
  EXPECT_NE(error_of([&] { Model(built_plugins(), single(dir / "edm.safetensors"), plugin); }), "");
}

// The published files without their data: one list of tensors in both layouts, and no tensor that nothing uses.
TEST(Sdxl, PublishedFilesOpenAsOneModel) {
  if (!fs::exists(key_lists() / "sd_xl_base_1.0.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  const TempDir dir;
  const auto listed = [](const std::string& list) {
    return nlohmann::json::parse(get(key_lists() / (list + ".json"))).at("tensors");
  };
  nlohmann::json all = listed("sd_xl_base_1.0");
  all.update(listed("sd_xl_base_1.0.conditioner"));
  const nlohmann::json vae = listed("sdxl_vae");
  for (const auto& [key, entry] : vae.items()) all["first_stage_model." + key] = entry;
  EXPECT_EQ(all.size(), 2515u);
  put(dir / "single.json", nlohmann::json{{"tensors", all}}.dump());
  make_hollow_checkpoint(dir / "single.json", dir / "single.safetensors");
  for (const std::string folder : {"unet", "vae", "text_encoder", "text_encoder_2"}) {
    fs::create_directories(dir / "folder" / folder);
    make_hollow_checkpoint(key_lists() / ("sdxl.diffusers-" + folder + ".json"),
                           dir.path() / "folder" / folder / "model.safetensors");
  }
  std::map<std::string, int64_t> elements[2];
  for (const int layout : {0, 1}) {
    const Model model(built_plugins(), single(layout == 0 ? dir / "single.safetensors" : dir / "folder"), "");
    EXPECT_EQ(model.id(), plugin);
    std::set<std::string> used, known;
    for (const auto& [name, desc] : model.checkpoint().weights()) {
      elements[layout][name] = desc.shape.numel();
      known.insert(name);
    }
    for (const auto& [role, at] : std::map<std::string, Sizes>{
             {"denoiser", {{"batch", 1}, {"height", 128}, {"width", 128}, {"text_length", 77}}},
             {"conditioner", both_lengths},
             {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 64}}},
             {"vae.decode", {{"batch", 1}, {"height", 8}, {"width", 8}}}}) {
      const Graph graph = model.build(role, at, DType::bf16);
      for (const auto& [name, value] : graph.params) used.insert(name);
      if (role == "conditioner") {
        EXPECT_EQ(graph.desc(graph.outputs.at("text")).shape, (Shape{1, 77, 2048}));
        EXPECT_EQ(graph.desc(graph.outputs.at("pooled")).shape, (Shape{1, 1280}));
      }
    }
    EXPECT_EQ(used, known);
    EXPECT_EQ(known.size(), 1680u + 248u + 196u + 517u);
  }
  EXPECT_EQ(elements[0], elements[1]);
}

// Convolution blocks and text encoders, where they are asked for: as many modules as other tools adapt.
TEST(Sdxl, FurtherLoraModules) {
  const Shapes shapes = full.shapes();
  const Described model(plugin, shapes);
  NetworkConfig network;
  network.conv = 4;
  const auto count = [&](const AdapterSelection& selection, const std::vector<std::string>& modules) {
    return std::ranges::count_if(modules, [&](const std::string& m) { return selection(m) != nullptr; });
  };
  std::vector<std::string> of_unet, of_text;
  for (const auto& [name, desc] : shapes)
    if (name.ends_with(".weight") && desc.shape.rank() > 1) of_unet.push_back(name.substr(0, name.size() - 7));
  Shapes clips;
  add_clip(clips, "clip_l:", 768, 12, 49408);
  add_clip(clips, "clip_g:", 1280, 32, 49408);
  for (const auto& [name, desc] : clips)
    if (desc.shape.rank() > 1) of_text.push_back(name.substr(0, name.size() - 7));
  const AdapterSelection plain({}, model.recipe(), 1), all(network, model.recipe(), 1, shapes, true);
  EXPECT_EQ(count(plain, of_unet), 722);
  EXPECT_EQ(count(plain, of_text), 0);
  // 17 res blocks of two convolutions and a linear, 11 of them with a skip connection; 2 downsamples, 2 upsamples.
  EXPECT_EQ(count(all, of_unet), 722 + 17 * 3 + 11 + 4);
  EXPECT_EQ(count(all, of_text), 72 + 192);
  for (const std::string module : {"input_blocks.0.0", "out.2", "time_embed.0", "label_emb.0.2"})
    EXPECT_EQ(all(module), nullptr) << module;
  for (const std::string module : {"input_blocks.4.0.in_layers.2", "input_blocks.3.0.op", "output_blocks.2.2.conv"})
    EXPECT_EQ(all(module)->rank, 4) << module;
  for (const std::string module : {"input_blocks.4.0.emb_layers.1", "input_blocks.4.0.skip_connection"})
    EXPECT_EQ(all(module)->rank, network.linear) << module;
}

// The text is what CLIP-L has before its last layer: there is nothing to train in that layer. CLIP-G's also gives the
// pooled vector.
TEST(Sdxl, LayersThatTheTextDoesNotReachAreNotTrained) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  const AdapterSelection selection({}, model.recipe(), 1, model.checkpoint().weights(), true);
  Sizes at = sizes;
  at.erase("text_length");
  at.insert({{"text_length", 77}, {"clip_l.length", 77}, {"clip_g.length", 77}});
  const TrainGraph train = build_train_graph(model, at, selection, {.text_encoders = true});
  std::map<std::string, int> modules;
  for (const AdaptedModule& m : train.modules)
    if (const size_t layer = m.name.find(".layers."); layer != std::string::npos)
      ++modules[m.name.substr(0, m.name.find(':')) + m.name.substr(layer, 9)];
  EXPECT_EQ(modules,
            (std::map<std::string, int>{{"clip_g.layers.0", 6}, {"clip_g.layers.1", 6}, {"clip_l.layers.0", 6}}));
}

// The states of three rows are those that each row has for itself, between the first begin and the last end; pooled is
// the first row's.
TEST(Sdxl, LongTextIsJoinedFromItsRows) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Sizes apart = both_lengths, joined = both_lengths;
  apart["batch"] = 3;
  joined.insert({{"clip_l.rows", 3}, {"clip_g.rows", 3}});
  for (const char* output : {"text", "pooled"}) {
    SCOPED_TRACE(output);
    const HostTensor got = output_of(model, model.build("conditioner", joined, DType::f32), output);
    const HostTensor rows = output_of(model, model.build("conditioner", apart, DType::f32), output);
    const std::span<const float> of_rows = rows.as<float>();
    const auto width = static_cast<size_t>(rows.desc.shape[rows.desc.shape.rank() - 1]);
    const auto state = [&](size_t at) { return of_rows.subspan(at * width, width); };
    std::vector<float> want(state(0).begin(), state(0).end());
    if (output == std::string("text")) {
      for (size_t row = 0; row < 3; ++row)
        for (size_t token = 1; token <= 75; ++token)
          std::ranges::copy(state(row * 77 + token), std::back_inserter(want));
      std::ranges::copy(state(3 * 77 - 1), std::back_inserter(want));
      EXPECT_EQ(got.desc.shape, (Shape{1, 227, static_cast<int64_t>(width)}));
    }
    EXPECT_TRUE(std::ranges::equal(got.as<float>(), want));
  }
}

TEST(Sdxl, TokensOfAPromptComeInWholeRows) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  for (const auto& [tokens, rows] : std::map<int64_t, int64_t>{{0, 1}, {75, 1}, {150, 2}, {225, 3}}) {
    config.max_token_length = tokens;
    EXPECT_EQ(Model(built_plugins(), config, "").recipe().tokenizers.at("clip_g").rows, rows);
  }
  for (const int64_t tokens : {77, 100, 300}) {
    config.max_token_length = tokens;
    EXPECT_EQ(
        error_of([&] { Model(built_plugins(), config, ""); }),
        fmt::format("model.max_token_length: 'sdxl' reads text in up to 3 rows of 75 tokens: use 75 to 225, found {}",
                    tokens));
  }
}

// Encoders of other models than the UNet's.
TEST(Sdxl, FilesThatDoNotBelongTogether) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  Shapes other;
  add_clip(other, "", 192, 1, 50);
  write_file(dir / "other.safetensors", filled(other));
  config.given["clip_path"] = {dir / "other.safetensors"};
  EXPECT_THAT(error_of([&] { Model(built_plugins(), config, ""); }),
              HasSubstr("the UNet takes text of width 192, but clip_l and clip_g give 192 + 128"));
  std::swap(config.given["clip_path"] = {dir / "clip_l.safetensors"}, config.given["clip_g_path"]);
  EXPECT_THAT(error_of([&] { Model(built_plugins(), config, ""); }),
              HasSubstr("missing tensor clip_g:text_projection.weight"));
}

TEST(Sdxl, InpaintingModelsTakeNineChannels) {
  const Described model(plugin, changed(320, 2048, 2816, 9).shapes());
  EXPECT_EQ(model.confidence(), 100);
  const Graph graph = model.denoiser({{"batch", 1}, {"height", 8}, {"width", 8}, {"text_length", 77}});
  EXPECT_EQ(graph.desc(graph.inputs.at("latents")).shape, (Shape{1, 8, 8, 4}));
  EXPECT_EQ(graph.desc(graph.inputs.at("mask")).shape, (Shape{1, 8, 8, 64}));
  EXPECT_EQ(graph.desc(graph.inputs.at("masked_image")).shape, (Shape{1, 8, 8, 4}));
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 8, 8, 4}));
  EXPECT_EQ(model.recipe().variant, "inpaint");
  EXPECT_EQ(Described(plugin, changed(320, 2048, 2816, 9).shapes(), "v_pred").recipe().variant, "v_pred-inpaint");
}

}  // namespace
}  // namespace lh::test::sdxl_test
