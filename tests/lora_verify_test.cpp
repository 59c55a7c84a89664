// Which programs load a LoRA file, for every shipped model: the formats that are written, and the spellings and tensors
// of other tools. Expectations are those of the programs' sources (docs/lora-files.md).
#include "io/lora_verify.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "io/lora_file.h"
#include "io/lora_names.h"
#include "io/lora_seal.h"
#include "support/golden.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::lora_verify_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// A small model of a golden case, by names and shapes, and a LoRA on its default layers and on a text encoder's.
struct Small {
  Small(const std::string& plugin, const std::string& name) : spec(spec_of(plugin)) {
    const golden::Case golden(fs::path(test_data()) / "golden" / name);
    for (const auto& [key, tensor] : golden.json.at("weights").items())
      weights[key] = {DType::f32, Shape(tensor.at("shape").get<std::vector<int64_t>>())};
    for (const char* const component : {"clip_l", "clip_g", "t5"}) {
      const std::string encoder = fmt::format("{}:", component);
      if (spec.component(component) == nullptr) continue;
      if (encoder == "t5:")
        add_t5(weights, encoder, 64, 1, 100);
      else
        add_clip(weights, encoder, 64, 1, 100);
    }
    for (const auto& target : golden.json.at("lora").at("targets")) modules.push_back(on(target));
    denoiser_modules = static_cast<int64_t>(modules.size());
    if (const ComponentSpec* clip = spec.component("clip_l"); clip != nullptr && !clip->lora.empty())
      modules.push_back(on("clip_l:text_model.encoder.layers.0.mlp.fc1"));
  }

  LoraModule on(const std::string& module) const {
    const Shape& w = weights.at(module + ".weight").shape;
    const int64_t rank = 2;
    return {module, HostTensor(Desc{DType::f32, w.with(0, rank)}),
            HostTensor(Desc{DType::f32, w.rank() == 4 ? Shape{w[0], rank, 1, 1} : Shape{w[0], rank}}), 1};
  }

  VerifyReport verify(const fs::path& path, const std::vector<std::string>& asked = {}) const {
    return verify_lora(read_lora(path), spec, weights, asked);
  }

  CheckpointSpec spec;
  Shapes weights;
  std::vector<LoraModule> modules;
  int64_t denoiser_modules = 0;
};

const ProgramReport& of(const VerifyReport& report, std::string_view program) {
  for (const ProgramReport& one : report.programs)
    if (one.program == program) return one;
  throw std::runtime_error("no program " + std::string(program));
}

constexpr int64_t everything = -1;  // of unmatched keys
constexpr int64_t no_program = -3;  // the program does not know the model

struct Written {
  const char *plugin, *golden, *format;
  int64_t comfyui, kohya, diffusers;  // unmatched keys
  bool full_size = false;
};

// The models' table of docs/lora-files.md. Attention layers of sdxl_tiny: 24 blocks of two with four modules each.
constexpr Written formats[] = {
    {"flux", "flux_schnell_tiny", "kohya", 0, 0, 3 * 13},  // width 256: its converter has 3072 in its code
    {"flux", "flux_schnell_tiny", "kohya", 0, 0, 0, true},
    {"flux", "flux_schnell_tiny", "comfyui", 0, everything, 0, true},
    {"flux", "flux_schnell_tiny", "diffusers", 0, everything, 0},
    {"chroma", "chroma_tiny", "kohya", 0, 0, everything},  // of another width than in its converter's code
    {"chroma", "chroma_tiny", "kohya", 0, 0, 0, true},
    {"chroma", "chroma_tiny", "comfyui", 0, everything, 0, true},
    {"chroma", "chroma_tiny", "diffusers", 0, everything, 0},
    {"chroma", "chroma_radiance_tiny", "kohya", 0, everything, everything},  // ComfyUI alone knows it
    {"chroma", "chroma_radiance_tiny", "comfyui", 0, everything, everything},
    {"chroma", "chroma_radiance_tiny", "diffusers", 0, everything, everything},
    {"flux2", "flux2_klein_tiny", "kohya", 0, no_program, 3 * 3},  // the modulations are not in its converter
    {"flux2", "flux2_klein_tiny", "comfyui", 0, no_program, everything},
    {"flux2", "flux2_klein_tiny", "diffusers", 2 * 3, no_program, 0},
    {"sd35", "sd35_medium_tiny", "kohya", 0, 0, everything},
    {"sd35", "sd35_medium_tiny", "comfyui", 0, everything, everything},
    {"sd35", "sd35_medium_tiny", "diffusers", 0, everything, 0},
    {"sd35", "sd35_large_tiny", "kohya", 0, 0, everything},
    {"sd35", "sd35_large_tiny", "diffusers", 0, everything, 0},
    {"sdxl", "sdxl_tiny", "kohya", 0, 0, 0},
    {"sdxl", "sdxl_tiny", "comfyui", 0, everything, everything},
    {"sdxl", "sdxl_tiny", "diffusers", -2, everything, 0},
    {"sdxl", "sdxl_locon_tiny", "kohya", 0, 0, 0},
    {"sdxl", "sdxl_locon_tiny", "comfyui", 0, everything, everything},
    {"sdxl", "sdxl_locon_tiny", "diffusers", -2, everything, 0},
    {"sd15", "sd15_tiny", "kohya", 0, 0, 0},
    {"sd15", "sd15_tiny", "comfyui", 0, everything, everything},
    {"sd15", "sd15_tiny", "diffusers", -2, everything, 0},
    {"sd15", "sd15_locon_tiny", "kohya", 0, 0, 0},
    {"sd15", "sd15_locon_tiny", "diffusers", -2, everything, 0},
    {"qwen_image", "qwen_image_tiny", "kohya", 0, no_program, 0},
    {"qwen_image", "qwen_image_tiny", "comfyui", 0, no_program, 0},
    {"qwen_image", "qwen_image_tiny", "diffusers", 0, no_program, 0},
    {"qwen_image21", "qwen_image21_tiny", "kohya", 0, no_program, 3 * 4},  // of 2 blocks gate_up; two outside
    {"qwen_image21", "qwen_image21_tiny", "comfyui", 0, no_program, 3 * 2},
    {"qwen_image21", "qwen_image21_tiny", "diffusers", 0, no_program, 0},
    {"krea2", "krea2_tiny", "kohya", 0, no_program, everything},
    {"krea2", "krea2_tiny", "comfyui", 0, no_program, everything},  // its converter takes lora_A and lora_B alone
    {"krea2", "krea2_tiny", "diffusers", 0, no_program, 0},
    {"ideogram4", "ideogram4_tiny", "kohya", 0, no_program, everything},
    {"ideogram4", "ideogram4_tiny", "comfyui", 0, no_program, 7 * 3},  // what lies outside of the blocks
    {"ideogram4", "ideogram4_tiny", "diffusers", everything, no_program, 0},
    {"flux3", "flux3_tiny", "kohya", no_program, no_program, everything},
    {"flux3", "flux3_tiny", "comfyui", no_program, no_program, everything},
    {"flux3", "flux3_tiny", "diffusers", no_program, no_program, 0},
    {"ernie_image", "ernie_image_tiny", "kohya", 0, no_program, everything},
    {"ernie_image", "ernie_image_tiny", "comfyui", 0, no_program, everything},  // diffusers refuses an alpha
    {"ernie_image", "ernie_image_tiny", "diffusers", 0, no_program, 0},
    {"wan", "wan_tiny", "kohya", 0, no_program, 0},
    {"wan", "wan_tiny", "comfyui", 0, no_program, 0},
    {"wan", "wan_tiny", "diffusers", everything, no_program, 0},  // ComfyUI knows the native names alone
    {"anima", "anima_tiny", "kohya", 0, 0, everything},
    {"anima", "anima_tiny", "comfyui", 0, everything, everything},
    {"anima", "anima_tiny", "diffusers", everything, everything, 0},
    {"auraflow", "auraflow_tiny", "kohya", 0, no_program, everything},
    {"auraflow", "auraflow_tiny", "comfyui", 0, no_program, everything},  // an alpha stops diffusers
    {"auraflow", "auraflow_tiny", "diffusers", 0, no_program, 0},
    {"hidream", "hidream_tiny", "kohya", 0, no_program, everything},
    {"hidream", "hidream_tiny", "comfyui", 0, no_program, everything},  // diffusers refuses an alpha
    {"hidream", "hidream_tiny", "diffusers", 0, no_program, 0},
    {"hidream_o1", "hidream_o1_tiny", "kohya", 0, no_program, no_program},
    {"hidream_o1", "hidream_o1_tiny", "comfyui", 0, no_program, no_program},
    {"hidream_o1", "hidream_o1_tiny", "diffusers", 0, no_program, no_program},
    {"omnigen2", "omnigen2_tiny", "kohya", 0, no_program, no_program},
    {"omnigen2", "omnigen2_tiny", "comfyui", 0, no_program, no_program},
    {"omnigen2", "omnigen2_tiny", "diffusers", everything, no_program, no_program},
    {"hunyuan_image", "hunyuan_image_tiny", "kohya", 0, 3 * 14, everything},  // 6 of the mlps and modulations; outside
    {"hunyuan_image", "hunyuan_image_tiny", "comfyui", 0, everything, everything},
    {"hunyuan_image", "hunyuan_image_tiny", "diffusers", everything, everything, 0},
    {"hunyuan_video1", "hunyuan_video1_tiny", "kohya", 0, 3 * 15,
     everything},  // 8 of the mlps and modulations; outside
    {"hunyuan_video1", "hunyuan_video1_tiny", "comfyui", 0, everything, everything},
    {"hunyuan_video1", "hunyuan_video1_tiny", "diffusers", everything, everything, 0},
    {"hunyuan_video", "hunyuan_video_tiny", "kohya", 0, no_program, everything},
    {"hunyuan_video", "hunyuan_video_tiny", "comfyui", 0, no_program, everything},
    {"hunyuan_video", "hunyuan_video_tiny", "diffusers", everything, no_program, 0},
    {"ltx2", "ltx2_tiny", "kohya", 0, no_program, everything},
    {"ltx2", "ltx2_tiny", "comfyui", 0, no_program, everything},  // an alpha stops diffusers
    {"ltx2", "ltx2_tiny", "diffusers", everything, no_program, 0},
    {"lumina2", "lumina2_tiny", "kohya", 0, 0, everything},
    {"lumina2", "lumina2_tiny", "comfyui", 0, everything, everything},
    {"lumina2", "lumina2_tiny", "diffusers", everything, everything, 0},
    {"z_image", "z_image_tiny", "kohya", 0, no_program, 0},
    {"z_image", "z_image_tiny", "comfyui", 0, no_program, 3 * 4},  // of 4 blocks the fused qkv
    {"z_image", "z_image_tiny", "diffusers", 0, no_program, 0}};

// Of a module's rows: thirds, q beside k and v of fewer heads, q, k and v beside an MLP, halves.
TEST(LoraVerify, RowsOfTheParts) {
  using Parts = std::vector<int64_t>;
  EXPECT_EQ(part_rows(6912, 2304, 3), (Parts{2304, 2304, 2304}));
  EXPECT_EQ(part_rows(3840, 2304, 3), (Parts{2304, 768, 768}));
  EXPECT_EQ(part_rows(7 * 64, 64, 4), (Parts{64, 64, 64, 256}));
  EXPECT_EQ(part_rows(128, 64, 2), (Parts{64, 64}));
  EXPECT_EQ(part_rows(127, 64, 2), Parts{});
}

TEST(LoraVerify, WrittenFormats) {
  const TempDir dir;
  for (const Written& row : formats) {
    SCOPED_TRACE(fmt::format("{} {} {}", row.golden, row.format, row.full_size ? "of the full size" : ""));
    Small model(row.plugin, row.golden);
    if (row.full_size)
      for (const auto& [weight, shape] :
           {std::pair{"img_in.weight", Shape{3072, 64}}, std::pair{"final_layer.linear.weight", Shape{64, 3072}}})
        model.weights.at(weight).shape = shape;
    if (row.format == std::string("diffusers"))  // has no names for these
      std::erase_if(model.modules, [](const LoraModule& m) { return m.name.starts_with("nerf_"); });
    const fs::path path = dir / "lora.safetensors";
    write_lora(path, model.modules, model.spec, row.format, DType::f32, {});
    const VerifyReport report = model.verify(path);
    const auto keys = static_cast<int64_t>(Safetensors(path).tensors().size());
    EXPECT_EQ(report.keys, keys);
    // The attention of transformer blocks, by the names of diffusers.
    const auto attention = std::ranges::count_if(model.modules, [](const LoraModule& m) {
      return m.name.find(".attn1.to_") != std::string::npos || m.name.find(".attn2.to_") != std::string::npos;
    });
    for (const auto& [program, wanted] :
         {std::pair{"comfyui", row.comfyui}, std::pair{"kohya", row.kohya}, std::pair{"diffusers", row.diffusers}}) {
      if (wanted == no_program) continue;
      const ProgramReport& one = of(report, program);
      const int64_t unmatched = wanted == everything ? keys : wanted == -2 ? 2 * attention : wanted;
      EXPECT_EQ(static_cast<int64_t>(one.issues.size()), unmatched)
          << program << ": " << (one.issues.empty() ? "" : one.issues[0].key + ": " + one.issues[0].why);
      EXPECT_EQ(one.loaded, keys - unmatched) << program;
      EXPECT_EQ(report.good({program}), unmatched == 0) << program;
      if (unmatched == keys) {
        EXPECT_FALSE(one.meant) << program;
        // Of a layer that it knows in no format: to leave it out.
        const bool unknown = program == std::string("kohya") &&
                             (row.plugin == std::string("hunyuan_image") ||
                              (row.plugin == std::string("hunyuan_video1") && row.format == std::string("diffusers")));
        const bool other_model = row.golden == std::string("chroma_radiance_tiny");
        EXPECT_THAT(one.issues[0].fix, HasSubstr(other_model ? "use it in another program"
                                                 : unknown   ? "ignore_if_contains"
                                                             : "save.format"))
            << program;
      }
    }
  }
}

// The keys fit comfyui and diffusers; the scale stands where not every program reads it.
TEST(LoraVerify, AScaleThatAProgramDoesNotRead) {
  const TempDir dir;
  Small model("flux", "flux_schnell_tiny");
  std::erase_if(model.modules, [](const LoraModule& m) { return m.name.starts_with("clip_l:"); });
  const fs::path path = dir / "lora.safetensors";
  write_lora(path, model.modules, model.spec, "diffusers", DType::f32, {});
  std::vector<Given> tensors;
  const auto write = [&](const std::map<std::string, std::string>& metadata) {
    write_file(path, tensors, metadata);
    return model.verify(path);
  };
  int64_t entries = 0, rank = 0;
  {
    const LoraFile file = read_lora(path);
    for (const StoredTensor& t : file.file->tensors()) tensors.push_back({t.name, file.file->read(t.name)});
    entries = static_cast<int64_t>(file.entries.size()), rank = file.entries[0].rank;
  }
  const auto issues = [](const VerifyReport& report, const char* program) {
    return static_cast<int64_t>(of(report, program).issues.size());
  };
  const auto configuration = [&](const char* component, int64_t alpha) {
    return fmt::format(R"({{"{0}r": {1}, "{0}lora_alpha": {2}}})", component, rank, alpha);
  };
  const VerifyReport own = write({{"lora_adapter_metadata", configuration("transformer.", 4 * rank)}});
  EXPECT_EQ(issues(own, "diffusers"), 0);
  EXPECT_EQ(issues(own, "comfyui"), entries);
  EXPECT_EQ(of(own, "comfyui").issues[0].why,
            "its scale is 4 by its lora_adapter_metadata, which comfyui does not read: it applies 1");
  const VerifyReport one = write({{"lora_adapter_metadata", configuration("transformer.", rank)}});
  EXPECT_EQ(issues(one, "comfyui"), 0) << "a scale of 1";
  put(dir / "adapter_config.json", configuration("", 2 * rank));
  const VerifyReport beside = write({});
  EXPECT_EQ(issues(beside, "comfyui"), entries);
  EXPECT_EQ(issues(beside, "diffusers"), entries);
}

// What other tools write, one module at a time: which programs load all of its keys.
struct Foreign {
  const char *plugin, *golden, *name, *weight;  // canonical module; of a fused one the rows of its first part
  const char* programs;                         // that load it
  const char* suffixes = "lora_A";
  int64_t parts = 1;
};

constexpr Foreign foreign[] = {
    {"flux", "flux_schnell_tiny", "transformer.transformer_blocks.0.attn.to_q", "double_blocks.0.img_attn.qkv",
     "comfyui diffusers", "lora_A", 3},
    {"flux", "flux_schnell_tiny", "transformer.transformer_blocks.0.attn.to_q", "double_blocks.0.img_attn.qkv",
     "comfyui", "lora_down", 3},
    {"flux", "flux_schnell_tiny", "transformer_blocks.0.attn.to_q", "double_blocks.0.img_attn.qkv", "comfyui", "lora_A",
     3},
    {"flux", "flux_schnell_tiny", "base_model.model.transformer_blocks.0.attn.to_q", "double_blocks.0.img_attn.qkv", "",
     "lora_A", 3},
    {"flux", "flux_schnell_tiny", "lora_transformer_transformer_blocks_0_attn_to_q", "double_blocks.0.img_attn.qkv",
     "comfyui", "lora_down", 3},
    {"flux", "flux_schnell_tiny", "diffusion_model.double_blocks.0.img_mlp.0", "double_blocks.0.img_mlp.0", "comfyui"},
    {"flux", "flux_schnell_tiny", "lora_te2_encoder_block_0_layer_0_SelfAttention_q",
     "t5:encoder.block.0.layer.0.SelfAttention.q", "comfyui", "lora_down"},
    {"flux", "flux_schnell_tiny", "lora_te3_encoder_block_0_layer_0_SelfAttention_q",
     "t5:encoder.block.0.layer.0.SelfAttention.q", "comfyui kohya", "lora_down"},
    {"chroma", "chroma_tiny", "diffusion_model.double_blocks.0.img_mlp.0", "double_blocks.0.img_mlp.0", "comfyui"},
    {"chroma", "chroma_tiny", "transformer.transformer_blocks.0.attn.to_q", "double_blocks.0.img_attn.qkv",
     "comfyui diffusers", "lora_A", 3},
    {"chroma", "chroma_tiny", "lora_te3_encoder_block_0_layer_0_SelfAttention_q",
     "t5:encoder.block.0.layer.0.SelfAttention.q", "kohya", "lora_down"},
    {"flux2", "flux2_klein_tiny", "diffusion_model.double_blocks.0.img_attn.qkv", "double_blocks.0.img_attn.qkv",
     "comfyui ai-toolkit diffusers"},
    {"flux2", "flux2_klein_tiny", "diffusion_model.double_blocks.0.img_attn.qkv", "double_blocks.0.img_attn.qkv",
     "comfyui", "lora_A+alpha"},
    {"flux2", "flux2_klein_tiny", "diffusion_model.double_blocks.0.img_mlp.0", "double_blocks.0.img_mlp.0", "comfyui",
     "lora_down"},
    {"flux2", "flux2_klein_tiny", "lora_unet_single_blocks_0_linear1", "single_blocks.0.linear1",
     "comfyui musubi-tuner diffusers", "lora_down+alpha"},
    {"flux2", "flux2_klein_tiny", "lora_unet_single_stream_modulation_lin", "single_stream_modulation.lin", "comfyui",
     "lora_down"},
    {"flux2", "flux2_klein_tiny", "diffusion_model.single_stream_modulation.lin", "single_stream_modulation.lin",
     "comfyui diffusers"},
    {"flux2", "flux2_klein_tiny", "diffusion_model.final_layer.adaLN_modulation.1", "final_layer.adaLN_modulation.1",
     "comfyui"},
    {"flux2", "flux2_klein_tiny", "transformer.norm_out.linear", "final_layer.adaLN_modulation.1", "comfyui diffusers"},
    {"flux2", "flux2_klein_tiny", "transformer.single_transformer_blocks.0.attn.to_qkv_mlp_proj",
     "single_blocks.0.linear1", "comfyui diffusers"},
    {"flux2", "flux2_klein_tiny", "transformer.single_stream_modulation.linear", "single_stream_modulation.lin",
     "diffusers"},
    {"flux2", "flux2_klein_tiny", "diffusion_model.transformer_blocks.0.ff.linear_in", "double_blocks.0.img_mlp.0",
     "diffusers"},
    {"flux2", "flux2_klein_tiny", "base_model.model.single_blocks.0.linear2", "single_blocks.0.linear2", "diffusers"},
    {"flux2", "flux2_klein_tiny", "transformer.transformer_blocks.0.attn.add_k_proj", "double_blocks.0.txt_attn.qkv",
     "comfyui diffusers", "lora_A", 3},
    {"sd35", "sd35_medium_tiny", "joint_blocks.0.x_block.mlp.fc1", "joint_blocks.0.x_block.mlp.fc1", ""},
    {"sd35", "sd35_medium_tiny", "transformer_blocks.0.attn.to_q", "joint_blocks.0.x_block.attn.qkv", "", "lora_A", 3},
    {"sd35", "sd35_medium_tiny", "base_model.model.transformer_blocks.0.attn.to_q", "joint_blocks.0.x_block.attn.qkv",
     "comfyui", "lora_A", 3},
    {"sd35", "sd35_medium_tiny", "lycoris_transformer_blocks_0_attn_to_q", "joint_blocks.0.x_block.attn.qkv", "comfyui",
     "lora_down", 3},
    {"sd35", "sd35_medium_tiny", "transformer.transformer_blocks.0.ff.net.2", "joint_blocks.0.x_block.mlp.fc2",
     "comfyui", "lora_A+alpha"},
    {"sd35", "sd35_medium_tiny", "text_encoder_2.text_model.encoder.layers.0.mlp.fc1",
     "clip_g:text_model.encoder.layers.0.mlp.fc1", "comfyui diffusers"},
    {"sd35", "sd35_medium_tiny", "lora_te1_encoder_layers_0_mlp_fc1", "clip_l:text_model.encoder.layers.0.mlp.fc1", "",
     "lora_down"},
    {"sdxl", "sdxl_tiny", "unet.down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q",
     "input_blocks.4.1.transformer_blocks.0.attn1.to_q", "diffusers"},
    {"sdxl", "sdxl_tiny", "unet.down_blocks.1.attentions.0.transformer_blocks.0.ff.net.0.proj",
     "input_blocks.4.1.transformer_blocks.0.ff.net.0.proj", "comfyui diffusers"},
    {"sdxl", "sdxl_tiny", "unet.down_blocks.1.attentions.0.transformer_blocks.0.attn1.processor.to_out",
     "input_blocks.4.1.transformer_blocks.0.attn1.to_out.0", "comfyui", "_lora.down"},
    {"sdxl", "sdxl_tiny", "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_q",
     "input_blocks.4.1.transformer_blocks.0.attn1.to_q", "comfyui kohya diffusers", "lora_down"},
    {"sdxl", "sdxl_tiny", "lora_unet_time_embed_0", "time_embed.0", "comfyui kohya", "lora_down"},
    {"sdxl", "sdxl_tiny", "lora_unet_input_blocks_4_1_proj_in", "input_blocks.4.1.proj_in", "comfyui", "loha"},
    {"sdxl", "sdxl_tiny", "lora_unet_input_blocks_4_1_proj_in", "input_blocks.4.1.proj_in", "comfyui", "dora inputs"},
    {"sdxl", "sdxl_tiny", "lora_unet_input_blocks_4_1_proj_in", "input_blocks.4.1.proj_in", "", "dora rows"},
    // ai-toolkit, musubi, raw files of DiffSynth, SimpleTuner; of z_image, too.
    {"qwen_image", "qwen_image_tiny", "diffusion_model.transformer_blocks.0.attn.add_q_proj",
     "transformer_blocks.0.attn.add_q_proj", "comfyui diffusers ai-toolkit"},
    {"qwen_image", "qwen_image_tiny", "lora_unet_transformer_blocks_0_img_mlp_net_0_proj",
     "transformer_blocks.0.img_mlp.net.0.proj", "comfyui diffusers", "lora_down+alpha"},
    {"qwen_image", "qwen_image_tiny", "transformer_blocks.0.attn.to_out.0", "transformer_blocks.0.attn.to_out.0",
     "comfyui"},
    {"qwen_image", "qwen_image_tiny", "lycoris_transformer_blocks_0_txt_mod_1", "transformer_blocks.0.txt_mod.1",
     "comfyui", "loha"},
    {"qwen_image", "qwen_image_tiny", "transformer.transformer_blocks.0.txt_mlp.net.2",
     "transformer_blocks.0.txt_mlp.net.2", "comfyui", "lora_A+alpha"},
    // ai-toolkit, musubi, DiffSynth, SimpleTuner.
    {"qwen_image21", "qwen_image21_tiny", "diffusion_model.transformer_blocks.0.img_mlp.gate_up",
     "transformer_blocks.0.img_mlp.gate_up", "comfyui ai-toolkit"},
    {"qwen_image21", "qwen_image21_tiny", "diffusion_model.transformer_blocks.0.attn.to_q",
     "transformer_blocks.0.attn.to_q", "comfyui diffusers ai-toolkit"},
    {"qwen_image21", "qwen_image21_tiny", "lora_unet_transformer_blocks_0_attn_to_out_0",
     "transformer_blocks.0.attn.to_out.0", "comfyui diffusers musubi-tuner", "lora_down+alpha"},
    {"qwen_image21", "qwen_image21_tiny", "lora_unet_transformer_blocks_1_img_mlp_gate_layer",
     "transformer_blocks.1.img_mlp.gate_up", "musubi-tuner", "lora_down+alpha", 2},
    {"qwen_image21", "qwen_image21_tiny", "transformer.transformer_blocks.1.img_mlp.proj",
     "transformer_blocks.1.img_mlp.gate_up", "comfyui diffusers", "lora_A", 2},
    {"qwen_image21", "qwen_image21_tiny", "diffusion_model.transformer_blocks.1.img_mlp.proj",
     "transformer_blocks.1.img_mlp.gate_up", "diffusers", "lora_A", 2},
    {"qwen_image21", "qwen_image21_tiny", "transformer_blocks.1.img_mlp.out", "transformer_blocks.1.img_mlp.out",
     "comfyui"},
    {"qwen_image21", "qwen_image21_tiny", "lycoris_txt_in_in_layer", "txt_in.in_layer", "comfyui", "loha"},
    {"qwen_image21", "qwen_image21_tiny", "transformer.modulation.1", "modulation.1", "comfyui diffusers"},
    {"krea2", "krea2_tiny", "diffusion_model.blocks.0.attn.gate", "blocks.0.attn.gate", "comfyui diffusers ai-toolkit"},
    {"krea2", "krea2_tiny", "diffusion_model.txtfusion.refiner_blocks.0.mlp.up", "txtfusion.refiner_blocks.0.mlp.up",
     "comfyui diffusers ai-toolkit"},
    {"krea2", "krea2_tiny", "diffusion_model.txtfusion.projector", "txtfusion.projector", "comfyui diffusers"},
    {"krea2", "krea2_tiny", "base_model.model.txtmlp.3", "txtmlp.3", "diffusers"},
    {"krea2", "krea2_tiny", "lora_unet_blocks_1_mlp_gate", "blocks.1.mlp.gate", "comfyui musubi-tuner",
     "lora_down+alpha"},
    {"krea2", "krea2_tiny", "transformer.transformer_blocks.0.attn.to_out.0", "blocks.0.attn.wo", "comfyui diffusers"},
    {"krea2", "krea2_tiny", "text_fusion.layerwise_blocks.0.ff.down", "txtfusion.layerwise_blocks.0.mlp.down",
     "comfyui"},
    {"krea2", "krea2_tiny", "lycoris_time_mod_proj", "tproj.1", "comfyui", "loha"},
    {"ideogram4", "ideogram4_tiny", "diffusion_model.layers.0.attention.qkv", "layers.0.attention.qkv",
     "comfyui diffusers ai-toolkit"},
    {"ideogram4", "ideogram4_tiny", "diffusion_model.layers.1.adaln_modulation", "layers.1.adaln_modulation",
     "comfyui diffusers", "lora_down+alpha"},
    {"ideogram4", "ideogram4_tiny", "diffusion_model.adaln_proj", "adaln_proj", "comfyui"},
    {"ideogram4", "ideogram4_tiny", "lora_unet_layers_0_feed_forward_w2", "layers.0.feed_forward.w2",
     "comfyui musubi-tuner", "lora_down+alpha"},
    {"ideogram4", "ideogram4_tiny", "transformer.layers.0.attention.to_q", "layers.0.attention.qkv", "diffusers",
     "lora_A", 3},
    {"ideogram4", "ideogram4_tiny", "transformer.layers.1.attention.to_out.0", "layers.1.attention.o", "diffusers"},
    {"flux3", "flux3_tiny", "diffusion_model.txt_mode_blocks.0.q_proj", "txt_mode_blocks.0.q_proj", "diffusers"},
    {"flux3", "flux3_edit_tiny", "transformer.mode_blocks.image_cond.1.ff.linear_in",
     "content_mode_blocks.image_cond.1.mlp_in", "diffusers"},
    {"ernie_image", "ernie_image_tiny", "diffusion_model.layers.0.self_attention.to_out.0",
     "layers.0.self_attention.to_out.0", "comfyui diffusers ai-toolkit"},
    {"ernie_image", "ernie_image_tiny", "transformer.layers.1.mlp.linear_fc2", "layers.1.mlp.linear_fc2",
     "comfyui diffusers ai-toolkit"},
    {"ernie_image", "ernie_image_tiny", "base_model.model.final_linear", "final_linear", "diffusers"},
    {"ernie_image", "ernie_image_tiny", "lora_unet_layers_0_mlp_gate_proj", "layers.0.mlp.gate_proj", "comfyui",
     "lora_down+alpha"},
    {"wan", "wan_tiny", "diffusion_model.blocks.0.self_attn.q", "blocks.0.self_attn.q", "comfyui diffusers ai-toolkit"},
    {"wan", "wan_tiny", "lora_unet_blocks_0_cross_attn_o", "blocks.0.cross_attn.o", "comfyui diffusers",
     "lora_down+alpha"},
    {"wan", "wan_tiny", "transformer.blocks.1.ffn.net.0.proj", "blocks.1.ffn.0", "diffusers ai-toolkit"},
    {"anima", "anima_tiny", "diffusion_model.blocks.0.adaln_modulation_mlp.1", "blocks.0.adaln_modulation_mlp.1",
     "comfyui diffusers ai-toolkit"},
    {"anima", "anima_tiny", "diffusion_model.blocks.0.mlp.layer1", "blocks.0.mlp.layer1", "comfyui", "lora_A+alpha"},
    {"anima", "anima_tiny", "diffusion_model.final_layer.linear", "final_layer.linear", "comfyui diffusers"},
    {"anima", "anima_tiny", "transformer.transformer_blocks.1.attn2.to_out.0", "blocks.1.cross_attn.output_proj",
     "diffusers ai-toolkit"},
    {"anima", "anima_tiny", "lora_unet_blocks_0_self_attn_q_proj", "blocks.0.self_attn.q_proj", "comfyui kohya",
     "lora_down+alpha"},
    {"anima", "anima_tiny", "lora_unet_blocks_0_mlp_layer2", "blocks.0.mlp.layer2", "comfyui", "loha"},
    {"auraflow", "auraflow_tiny", "lora_unet_double_layers_0_mlpC_c_fc2", "double_layers.0.mlpC.c_fc2", "comfyui",
     "lora_down+alpha"},
    {"auraflow", "auraflow_tiny", "diffusion_model.single_layers.0.modCX.1", "single_layers.0.modCX.1", "comfyui"},
    {"auraflow", "auraflow_tiny", "transformer.joint_transformer_blocks.0.attn.to_add_out", "double_layers.0.attn.w1o",
     "comfyui diffusers"},
    {"auraflow", "auraflow_tiny", "transformer.norm_out.linear", "modF.1", "comfyui diffusers"},
    {"auraflow", "auraflow_tiny", "lora_transformer_single_transformer_blocks_0_ff_out_projection",
     "single_layers.0.mlp.c_proj", "ai-toolkit", "lora_down+alpha"},
    {"hidream", "hidream_tiny", "diffusion_model.double_stream_blocks.0.block.ff_i.experts.3.w1",
     "double_stream_blocks.0.block.ff_i.experts.3.w1", "comfyui diffusers ai-toolkit"},
    {"hidream", "hidream_tiny", "transformer.single_stream_blocks.1.block.attn1.to_out",
     "single_stream_blocks.1.block.attn1.to_out", "comfyui diffusers ai-toolkit"},
    {"hidream", "hidream_tiny", "lycoris_caption_projection_2_linear", "caption_projection.2.linear", "comfyui",
     "lora_down+alpha"},
    {"hunyuan_image", "hunyuan_image_tiny", "lora_unet_double_blocks_0_img_mlp_fc1", "double_blocks.0.img_mlp.0",
     "kohya", "lora_down+alpha"},
    {"hunyuan_image", "hunyuan_image_tiny", "lora_unet_single_blocks_0_modulation_linear",
     "single_blocks.0.modulation.lin", "kohya", "lora_down+alpha"},
    {"hunyuan_image", "hunyuan_image_tiny", "lora_unet_double_blocks_0_txt_attn_qkv", "double_blocks.0.txt_attn.qkv",
     "comfyui kohya", "lora_down+alpha"},
    {"hunyuan_image", "hunyuan_image_tiny", "diffusion_model.double_blocks.0.img_mlp.0", "double_blocks.0.img_mlp.0",
     "comfyui"},
    {"omnigen2", "omnigen2_tiny", "layers.0.attn.to_out.0", "layers.0.attn.to_out.0", "comfyui"},
    {"omnigen2", "omnigen2_tiny", "diffusion_model.layers.1.feed_forward.linear_2", "layers.1.feed_forward.linear_2",
     "comfyui ai-toolkit"},
    {"lumina2", "lumina2_tiny", "lora_unet_layers_0_attention_qkv", "layers.0.attention.qkv", "comfyui kohya",
     "lora_down+alpha"},
    {"lumina2", "lumina2_tiny", "lora_unet_final_layer_linear", "final_layer.linear", "comfyui kohya",
     "lora_down+alpha"},
    {"lumina2", "lumina2_tiny", "diffusion_model.noise_refiner.0.adaLN_modulation.1",
     "noise_refiner.0.adaLN_modulation.1", "comfyui"},
    {"lumina2", "lumina2_tiny", "transformer.context_refiner.0.feed_forward.linear_2",
     "context_refiner.0.feed_forward.w2", "diffusers ai-toolkit"},
    {"lumina2", "lumina2_tiny", "transformer.layers.0.norm1.linear", "layers.0.adaLN_modulation.1",
     "diffusers ai-toolkit"},
    {"z_image", "z_image_tiny", "diffusion_model.layers.0.attention.to_q", "layers.0.attention.qkv",
     "comfyui diffusers ai-toolkit", "lora_A", 3},
    {"z_image", "z_image_tiny", "diffusion_model.noise_refiner.0.attention.to_q", "noise_refiner.0.attention.qkv",
     "comfyui diffusers", "lora_A", 3},
    {"z_image", "z_image_tiny", "lora_unet_layers_0_attention_to_q", "layers.0.attention.qkv", "diffusers", "lora_down",
     3},
    {"z_image", "z_image_tiny", "lora_unet_layers_0_attention_to_out_0", "layers.0.attention.out", "diffusers",
     "lora_down"},
    {"z_image", "z_image_tiny", "layers.0.attention.to_q", "layers.0.attention.qkv", "comfyui", "lora_A", 3},
    {"z_image", "z_image_tiny", "diffusion_model.layers.0.attention.qkv", "layers.0.attention.qkv", "comfyui",
     "lora_down"},
    {"z_image", "z_image_tiny", "transformer.layers.0.attention.to_out.0", "layers.0.attention.out",
     "comfyui diffusers ai-toolkit"}};

std::vector<Given> tensors_of(const Foreign& row, const Shape& weight) {
  const std::string name = row.name, suffixes = row.suffixes;
  const int64_t rows = weight[0] / row.parts, in = weight[1];
  const auto zeros = [](Shape shape) { return HostTensor(Desc{DType::f32, std::move(shape)}); };
  if (suffixes == "loha")
    return {{name + ".hada_w1_a", zeros({rows, 2})},
            {name + ".hada_w1_b", zeros({2, in})},
            {name + ".hada_w2_a", zeros({rows, 2})},
            {name + ".hada_w2_b", zeros({2, in})}};
  const std::string separator = suffixes[0] == '_' ? "" : ".";
  const bool letters = suffixes.starts_with("lora_A"), dora = suffixes.starts_with("dora");
  const std::string down = dora ? "lora_down" : suffixes.substr(0, suffixes.find('+'));
  const std::string up = letters ? "lora_B" : down == "_lora.down" ? "_lora.up" : "lora_up";
  std::vector<Given> all{{name + separator + down + ".weight", zeros({2, in})},
                         {name + separator + up + ".weight", zeros({rows, 2})}};
  if (suffixes.ends_with("+alpha")) all.push_back({name + ".alpha", zeros({})});
  if (dora) all.push_back({name + ".dora_scale", zeros(suffixes == "dora rows" ? Shape{rows, 1} : Shape{1, in})});
  return all;
}

TEST(LoraVerify, OtherToolsSpellings) {
  const TempDir dir;
  for (const Foreign& row : foreign) {
    SCOPED_TRACE(fmt::format("{} {}", row.name, row.suffixes));
    const Small model(row.plugin, row.golden);
    write_file(dir / "lora", tensors_of(row, model.weights.at(std::string(row.weight) + ".weight").shape));
    const VerifyReport report = model.verify(dir / "lora");
    std::string programs;
    for (const ProgramReport& one : report.programs)
      if (one.issues.empty()) programs += (programs.empty() ? "" : " ") + one.program;
    EXPECT_EQ(programs, row.programs);
    for (const ProgramReport& one : report.programs)
      for (const LoraIssue& issue : one.issues) EXPECT_FALSE(issue.why.empty() || issue.fix.empty()) << issue.key;
  }
}

// Keys of no layer of the model, of the wrong shape, half pairs: no program is said to load them.
TEST(LoraVerify, WhatNoProgramLoads) {
  const TempDir dir;
  const Small model("sd35", "sd35_medium_tiny");
  const auto zeros = [](Shape shape) { return HostTensor(Desc{DType::f32, std::move(shape)}); };
  const std::string fits = "lora_unet_joint_blocks_0_x_block_mlp_fc1";
  const Shape weight = model.weights.at("joint_blocks.0.x_block.mlp.fc1.weight").shape;
  struct Case {
    std::string name;
    Shape down, up;
    std::string why;
  };
  const std::vector<Case> cases{
      {"lora_unet_double_blocks_0_img_mlp_0", {2, 4}, {4, 2}, "no layer of this model has this name"},
      {"lora_te2_encoder_block_0_layer_0_SelfAttention_q", {2, 4}, {4, 2}, "no layer of this model has this name"},
      {"text_encoder_3.encoder.block.0.layer.0.SelfAttention.q", {2, 4}, {4, 2}, "no layer of this model"},
      {fits, {2, weight[1] + 1}, {weight[0], 2}, "it was trained for another model"},
      {fits, {2, weight[1]}, {weight[0], 3}, "do not fit"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name + " " + c.why);
    write_file(dir / "lora",
               {{c.name + ".lora_down.weight", zeros(c.down)}, {c.name + ".lora_up.weight", zeros(c.up)}});
    const VerifyReport report = model.verify(dir / "lora");
    EXPECT_FALSE(report.good({}));
    for (const ProgramReport& one : report.programs) {
      ASSERT_EQ(one.issues.size(), 2u) << one.program;
      EXPECT_THAT(one.issues[0].why, HasSubstr(c.why)) << one.program;
    }
  }
}

// Diffusers scales all modules by the first one's rank where a file has no alphas.
TEST(LoraVerify, OneRankForDiffusers) {
  const TempDir dir;
  const Small model("flux", "flux_schnell_tiny");
  const auto pair = [&](const std::string& name, const std::string& module, int64_t rank, std::vector<Given>& out) {
    const Shape& w = model.weights.at(module + ".weight").shape;
    out.push_back({"transformer." + name + ".lora_A.weight", HostTensor(Desc{DType::f32, {rank, w[1]}})});
    out.push_back({"transformer." + name + ".lora_B.weight", HostTensor(Desc{DType::f32, {w[0], rank}})});
  };
  std::vector<Given> tensors;
  pair("transformer_blocks.0.attn.to_out.0", "double_blocks.0.img_attn.proj", 2, tensors);
  pair("transformer_blocks.0.ff.net.2", "double_blocks.0.img_mlp.2", 3, tensors);
  write_file(dir / "lora", tensors);
  const VerifyReport report = model.verify(dir / "lora");
  EXPECT_TRUE(report.good({"comfyui"}));
  ASSERT_EQ(of(report, "diffusers").issues.size(), 1u);
  EXPECT_THAT(of(report, "diffusers").issues[0].why, HasSubstr("rank 3 beside modules of rank 2"));
}

// The command: its report, its exit code, what `--for` asks.
TEST(LoraVerify, Command) {
  const TempDir dir;
  const fs::path toy = toy_folder() / "flux_toy.safetensors";
  const std::string lora = dir / "lora.safetensors";
  write_file(lora,
             {{"lora_unet_single_blocks_0_linear2.lora_down.weight", HostTensor(Desc{DType::f32, {2, 1280}})},
              {"lora_unet_single_blocks_0_linear2.lora_up.weight", HostTensor(Desc{DType::f32, {256, 2}})},
              {"lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", HostTensor(Desc{DType::f32, {2, 8}})},
              {"lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_up.weight", HostTensor(Desc{DType::f32, {8, 2}})}});
  const auto verify = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"verify", lora, "--model", toy.string()});
    return run_host(more);
  };
  const HostResult all = verify({});
  EXPECT_EQ(all.code, 0) << all.output;
  EXPECT_THAT(all.output,
              AllOf(HasSubstr("4 keys, 2 modules"), HasSubstr("comfyui    2 loaded, 0 unmatched, 2 not checked"),
                    HasSubstr("full size only"), HasSubstr("save it with save.format diffusers")));
  EXPECT_EQ(verify({"--for", "comfyui,kohya"}).code, 0);
  EXPECT_EQ(verify({"--for", "comfyui,diffusers"}).code, 3);
  const HostResult unknown = verify({"--for", "a1111"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("it knows comfyui, kohya, diffusers"));
  const HostResult json = verify({"--json"});
  const auto report = nlohmann::json::parse(json.output);
  EXPECT_EQ(report.at("programs").at(2).at("unmatched"), 2) << json.output;
  const HostResult inspected = run_host({"inspect", lora, "--json"});
  EXPECT_EQ(nlohmann::json::parse(inspected.output).at("names_of").at(0).at("plugin"), "flux") << inspected.output;
}

// A file whose content is damaged is good for no program, and is not merged.
TEST(LoraVerify, DamagedContentFails) {
  const TempDir dir;
  const fs::path toy = toy_folder() / "flux_toy.safetensors";
  const std::string lora = dir / "lora.safetensors", module = "lora_unet_single_blocks_0_linear2";
  HostTensor down(Desc{DType::f32, {2, 1280}}), up(Desc{DType::f32, {256, 2}});
  const auto run = [&](const std::string& command) {
    std::vector<std::string> words{command, lora, "--model", toy.string()};
    if (command == "sample")
      words = {command, "--model", toy.string(), "--prompt", "a", "--device", "cpu", "--lora", lora};
    return run_host(words);
  };
  up.as<float>()[7] = NAN;
  write_file(lora, {{module + ".lora_down.weight", down}, {module + ".lora_up.weight", up}});
  HostResult result = run("verify");
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.output, HasSubstr(module + ".lora_up.weight: 1 of 512 values are a NaN or an infinity"));
  up.as<float>()[7] = 1;
  std::vector<TensorToWrite> list{{module + ".lora_down.weight", down.desc, down.data.data()},
                                  {module + ".lora_up.weight", up.desc, up.data.data()}};
  std::map<std::string, std::string> metadata;
  seal_lora(list, metadata);
  write_safetensors(lora, list, metadata);
  EXPECT_EQ(run("verify").code, 0);
  std::string bytes = get(lora);
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 1);
  put(lora, bytes);
  for (const char* command : {"verify", "sample"}) {
    result = run(command);
    EXPECT_EQ(result.code, 3) << result.output;
    EXPECT_THAT(result.output, HasSubstr("does not match its checksum"));
  }
}

// Other programs edit metadata, and change tensors under a hash of their own.
TEST(LoraSeal, IsOfTheTensors) {
  const TempDir dir;
  HostTensor values(Desc{DType::f32, {4}});
  const auto written = [&](std::map<std::string, std::string> metadata) {
    write_safetensors(dir / "x", {{"a", values.desc, values.data.data()}}, metadata);
    return error_of([&] { check_lora_seal(Safetensors(dir / "x")); });
  };
  const auto data_hash = [&] { return Sha256().update(std::span(values.data)).hex(); };
  EXPECT_EQ(written({{"digest", "0"}}), "") << "no seal";
  std::map<std::string, std::string> metadata{{"sshs_model_hash", data_hash()}, {"ss_tag", "a"}};
  seal_lora({{"a", values.desc, values.data.data()}}, metadata);
  EXPECT_EQ(written(metadata), "");
  metadata["ss_tag"] = "edited";
  EXPECT_EQ(written(metadata), "");
  values.as<float>()[2] = 1;
  EXPECT_THAT(written(metadata), HasSubstr("does not match its checksum"));
  metadata["sshs_model_hash"] = data_hash();
  EXPECT_EQ(written(metadata), "") << "resized by a program that says so";
  values.as<float>()[2] = 2;
  EXPECT_THAT(written(metadata), HasSubstr("does not match its checksum"));
}

}  // namespace
}  // namespace lh::test::lora_verify_test
