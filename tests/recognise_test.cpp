// Files that are no model, or not one of the plugin that was asked for: each is refused with what it is and what to
// give.
#include "plugin/recognise.h"

#include <gmock/gmock.h>

#include "support/model_files.h"
#include "support/paths.h"

namespace lh::test::recognise_test {
namespace {

namespace fs = std::filesystem;

using Tensors = std::vector<std::pair<std::string, Shape>>;

void write(const fs::path& path, const Tensors& tensors, const std::string& prefix = "") {
  std::vector<Given> all;
  for (const auto& [name, shape] : tensors) all.push_back({prefix + name, counting(shape)});
  write_file(path, all);
}

std::function<void(const fs::path&)> file_of(const Tensors& tensors, const std::string& prefix = "") {
  return [=](const fs::path& path) { write(path, tensors, prefix); };
}

std::function<void(const fs::path&)> copy_of(const std::string& name) {
  return [=](const fs::path& path) { fs::copy_file(toy_folder() / name, path); };
}

const Tensors double_block{{"double_blocks.0.img_attn.qkv.weight", {6, 2}}, {"single_blocks.0.linear1.weight", {8, 2}}};
const Tensors joint_block{{"joint_blocks.0.context_block.attn.qkv.weight", {6, 2}}};

Tensors operator+(Tensors a, const Tensors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Tensors chroma_block = double_block + Tensors{{"distilled_guidance_layer.in_proj.weight", {2, 2}}};

const Tensors qwen_image_block{{"txt_norm.weight", {2}},
                               {"transformer_blocks.0.img_mod.1.weight", {12, 2}},
                               {"transformer_blocks.0.txt_mod.1.weight", {12, 2}}};
const Tensors qwen_image21_block{{"txt_in.text_norm.weight", {2}},
                                 {"modulation.1.weight", {8, 2}},
                                 {"transformer_blocks.0.img_mlp.gate_up.weight", {12, 2}}};

struct Case {
  const char* name;
  std::function<void(const fs::path&)> make;  // a file or folder at this path
  const char* plugin;                         // asked for; "" = any
  std::vector<const char*> texts;             // regular expressions, all found in the error
};

const Case cases[] = {
    {"another_plugin_takes_it",
     copy_of("flux_toy.safetensors"),
     "sd35",
     {R"(this is not a checkpoint of plugin 'sd35': its marker tensor 'joint_blocks\.0\.\S+' is not there)",
      R"(plugin 'flux' takes it: say `plugin: flux` \(--plugin flux\), or leave the plugin and model\.arch out)"}},
    {"nobody_knows_it",
     file_of({{"some.weight", {2, 2}}}),
     "",
     {R"(model: no model plugin knows this checkpoint \(asked: .*flux.*sd35.*\)\.$)"}},
    // Relatives, in the words of the plugin that knows them.
    {"chroma_for_flux",
     file_of(chroma_block),
     "flux",
     {R"(not a checkpoint of plugin 'flux': this is a Chroma model)", R"(plugin 'chroma' takes it)"}},
    {"chroma_behind_a_prefix",
     file_of(chroma_block, "model.diffusion_model."),
     "flux",
     {R"(not a checkpoint of plugin 'flux': this is a Chroma model)", R"(plugin 'chroma' takes it)"}},
    {"chroma_of_diffusers",
     [](const fs::path& path) {
       Tensors tensors{{"distilled_guidance_layer.in_proj.weight", {2, 2}},
                       {"single_transformer_blocks.0.proj_mlp.weight", {2, 2}}};
       for (const char* block : {"transformer_blocks", "single_transformer_blocks"})
         for (const char* part : {"q", "k", "v"})
           tensors.emplace_back(fmt::format("{}.0.attn.to_{}.weight", block, part), Shape{2, 2});
       write(path / "transformer" / "diffusion_pytorch_model.safetensors", tensors);
     },
     "flux",
     {R"(this is a Chroma model)", R"(plugin 'chroma' takes it)"}},
    {"chroma_without_its_ends", file_of(chroma_block), "", {R"(missing tensor img_in\.weight)"}},
    {"radiance",
     file_of(chroma_block + Tensors{{"nerf_blocks.0.norm.scale", {2}}}),
     "chroma",
     {R"(missing tensor img_in_patch\.weight)"}},
    {"flux_for_chroma",
     copy_of("flux_toy.safetensors"),
     "chroma",
     {R"(not a checkpoint of plugin 'chroma': this is a Flux\.1 model)", R"(plugin 'flux' takes it)"}},
    {"flux_2",
     file_of(double_block + Tensors{{"double_stream_modulation_img.lin.weight", {6, 2}}}),
     "flux",
     {R"(not a checkpoint of plugin 'flux': this is a Flux\.2 model)", R"(plugin 'flux2' takes it)"}},
    {"flux_2_without_its_ends",
     file_of(double_block + Tensors{{"double_stream_modulation_img.lin.weight", {6, 2}}}),
     "",
     {R"(missing tensor img_in\.weight)"}},
    {"flux_for_flux_2",
     copy_of("flux_toy.safetensors"),
     "flux2",
     {R"(not a checkpoint of plugin 'flux2': this is a Flux\.1 model)", R"(plugin 'flux' takes it)"}},
    {"hunyuan_video",
     file_of(double_block + Tensors{{"txt_in.individual_token_refiner.blocks.0.norm1.weight", {2}}}),
     "",
     {R"(flux: this is a HunyuanVideo model)"}},
    {"hunyuan_image_for_flux",
     file_of(double_block + Tensors{{"txt_in.individual_token_refiner.blocks.0.norm1.weight", {2}},
                                    {"txt_in.input_embedder.weight", {2, 2}},
                                    {"byt5_in.fc1.weight", {2, 2}}}),
     "flux",
     {R"(not a checkpoint of plugin 'flux': this is HunyuanImage 2\.1)", R"(plugin 'hunyuan_image' takes it)"}},
    {"flux_depth",
     file_of(double_block + Tensors{{"img_in.weight", {2, 128}}, {"final_layer.linear.weight", {64, 2}}}),
     "",
     {R"(flux: this is Flux\.1 Depth or Canny)"}},
    {"controlnet", file_of({{"controlnet_blocks.0.weight", {2, 2}}}), "", {R"(flux: this is a ControlNet)"}},
    {"auraflow_for_sd35",
     file_of({{"double_layers.0.attn.w1q.weight", {2, 2}},
              {"double_layers.0.attn.w2q.weight", {2, 2}},
              {"single_layers.0.attn.w1q.weight", {2, 2}},
              {"cond_seq_linear.weight", {2, 2}}}),
     "sd35",
     {R"(not a checkpoint of plugin 'sd35': this is an AuraFlow model)", R"(plugin 'auraflow' takes it)"}},
    {"auraflow_without_its_text",
     file_of({{"double_layers.0.attn.w1q.weight", {2, 2}}}),
     "",
     {R"(sd35: this is an AuraFlow model)"}},
    {"controlnet_of_auraflow",
     [](const fs::path& path) {
       write(path / "transformer" / "diffusion_pytorch_model.safetensors",
             {{"joint_transformer_blocks.0.attn.to_q.weight", {2, 2}}, {"controlnet_blocks.0.weight", {2, 2}}});
     },
     "",
     {R"(auraflow: this is a ControlNet)"}},
    {"qwen_image_layered",
     file_of(qwen_image_block + Tensors{{"time_text_embed.addition_t_embedding.weight", {2, 2}}}),
     "",
     {R"(qwen_image: this is Qwen-Image-Layered, which makes an image in layers)"}},
    {"qwen_image_21_for_qwen_image",
     file_of(qwen_image21_block, "model.diffusion_model."),
     "qwen_image",
     {R"(not a checkpoint of plugin 'qwen_image': this is Qwen-Image 2\.1, whose text and image are one stream)",
      R"(plugin 'qwen_image21' takes it)"}},
    {"qwen_image_for_qwen_image_21",
     file_of(qwen_image_block, "model.diffusion_model."),
     "qwen_image21",
     {R"(not a checkpoint of plugin 'qwen_image21': this is Qwen-Image, or one of its Edit models)",
      R"(plugin 'qwen_image' takes it)"}},
    {"controlnet_of_qwen_image_21",
     file_of({{"control_img_in.weight", {2, 129}}, {"control_blocks.0.img_mlp.gate_up.weight", {2, 2}}}),
     "",
     {R"(qwen_image21: this is a ControlNet of Qwen-Image 2\.1)"}},
    {"controlnet_union_of_qwen_image",
     file_of({{"control_img_in.weight", {2, 132}}, {"control_blocks.0.after_proj.weight", {2, 2}}}),
     "",
     {R"(qwen_image: this is a ControlNet \(control_blocks)"}},
    {"wan_of_first_and_last_frames",
     file_of({{"head.modulation", {1, 2, 2}}, {"blocks.0.self_attn.q.weight", {2, 2}}, {"img_emb.emb_pos", {1, 2, 2}}}),
     "",
     {R"(wan: this is Wan 2\.1 of first and last frames, FLF2V)"}},
    {"cosmos_predict2",
     file_of({{"t_embedding_norm.weight", {2}},
              {"x_embedder.proj.1.weight", {2, 68}},
              {"blocks.0.mlp.layer1.weight", {8, 2}}}),
     "",
     {R"(anima: this is Cosmos-Predict2, on which Anima was built)"}},
    {"lumina_2",
     file_of({{"layers.0.attention.qkv.weight", {6, 2}}, {"context_refiner.0.attention.qkv.weight", {6, 2}}}),
     "",
     {R"(z_image: this is a Lumina 2 model: its text comes from Gemma)"}},
    {"mmdit_without_positions", file_of(joint_block), "", {R"(sd35: this is an MMDiT without stored positions)"}},
    {"sd3_with_further_inputs",
     file_of(joint_block + Tensors{{"pos_embed", {1, 4, 2}},
                                   {"x_embedder.proj.weight", {2, 33, 2, 2}},
                                   {"final_layer.linear.weight", {64, 2}}}),
     "sd35",
     {R"(it takes 33 channels and makes 16)"}},
    // Things that are no model.
    {"lora",
     file_of({{"lora_unet_double_blocks_0_img_mlp_0.lora_down.weight", {2, 4}},
              {"lora_unet_double_blocks_0_img_mlp_0.lora_up.weight", {4, 2}}}),
     "",
     {R"(no model plugin knows)", R"(It is a LoRA file\. .*--lora)"}},
    {"autoencoder",
     copy_of("ae.safetensors"),
     "",
     {R"(It holds vae of .*flux, .*sd35.*: give it as model\.vae_path)",
      R"(model\.name_or_path is the file or folder of the denoiser)"}},
    {"autoencoder_for_a_plugin",
     copy_of("ae.safetensors"),
     "flux",
     {R"(its marker tensor 'double_blocks\S+' is not there)", R"(It holds vae of .*flux, .*sd35)"}},
    {"text_encoder",
     copy_of("clip_l.safetensors"),
     "",
     {R"(It holds clip_l of flux, .*sd35.*: give it as model\.clip_path)"}},
    {"t5", copy_of("t5xxl.safetensors"), "", {R"(It holds t5 of .*flux, hidream, sd35.*: give it as model\.t5_path)"}},
    {"folder_without_a_denoiser",
     [](const fs::path& path) {
       write_directory(path, spec_of("flux"), {{"vae", tensors_of(toy_folder() / "ae.safetensors")}}, {"vae"}, "",
                       as_is);
       fs::create_directories(path / "tokenizer");
     },
     "",
     {R"(It holds vae of .*flux, .*sd35)"}},
    {"folder_of_a_single_file",
     [](const fs::path& path) {
       fs::create_directories(path);
       fs::copy_file(toy_folder() / "flux_toy.safetensors", path / "toy.safetensors");
     },
     "",
     {R"(folder without the weights of a model where a plugin looks for them; in it: toy\.safetensors)"}},
    {"empty_folder",
     [](const fs::path& path) { fs::create_directories(path); },
     "",
     {R"(It is a folder without safetensors files)"}},
    {"pickles_in_a_folder",
     [](const fs::path& path) { put(path / "transformer" / "diffusion_pytorch_model.bin", "PK"); },
     "",
     {R"(diffusion_pytorch_model\.bin, a PyTorch pickle.*Download the \.safetensors)"}},
    {"gguf",
     [](const fs::path& path) { put(path, "GGUF" + std::string(64, '\x03')); },
     "",
     {R"(version 50529027, expected 2 or 3)"}},
};

class Recognise : public testing::TestWithParam<Case> {};

TEST_P(Recognise, SaysWhatItIs) {
  const TempDir dir;
  GetParam().make(dir / "model");
  ModelConfig config;
  config.name_or_path = dir / "model";
  const std::string error = error_of([&] { Model(built_plugins(), config, GetParam().plugin); });
  for (const char* text : GetParam().texts) EXPECT_THAT(error, testing::ContainsRegex(text));
}

INSTANTIATE_TEST_SUITE_P(All, Recognise, testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

// The same architecture where it is whole is taken, so the words above are not said of it, unless by the one that was
// named.
TEST(Recognise, TheSurestPluginComesFirst) {
  for (const char* named : {"", "chroma", "flux2", "sdxl"}) {
    SCOPED_TRACE(named);
    const std::vector<Opinion> opinions = ask_plugins(built_plugins(), toy_folder() / "flux_toy.safetensors", named);
    ASSERT_GE(opinions.size(), 2u);
    EXPECT_EQ(opinions[0].id(), "flux");
    EXPECT_EQ(opinions[0].confidence, 100);
    for (const Opinion& opinion : opinions) {
      const bool knows = opinion.id() == "chroma" || opinion.id() == "flux2";  // whose names these are
      if (knows && (opinion.has_marker || opinion.id() == named)) {
        EXPECT_THAT(opinion.words, testing::HasSubstr("this is a Flux.1 model"));
      } else {
        EXPECT_EQ(opinion.words, "") << opinion.id();
      }
      if (opinion.id() != "flux") {
        EXPECT_EQ(opinion.confidence, 0) << opinion.id();
      }
    }
  }
}

}  // namespace
}  // namespace lh::test::recognise_test
