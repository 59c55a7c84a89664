// What users get wrong: each case has its exit code and a text that says what, where and what to do; nothing crashes.
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <regex>

#include "io/lora_file.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_step.h"
namespace lh::test::wrong_input_test {
namespace {

namespace fs = std::filesystem;

const fs::path source = source_dir();
const fs::path plugins = fs::path(binary_dir()) / "lib" / "lora-host";

struct Case {
  const char* name;
  std::function<void(ToyRun&)> spoil;
  int code;
  const char* text;                         // regular expression
  std::vector<std::string> arguments = {};  // FOLDER stands for the run's own folder
  HostOptions options = {};
};

// The model.

std::function<void(ToyRun&)> model_at(const std::string& path) {
  return [path](ToyRun& run) { run.set("name_or_path", path); };
}

// Another file in place of the model.
std::function<void(ToyRun&)> model_bytes(const std::function<std::string()>& bytes,
                                         const std::string& name = "model.safetensors") {
  return [bytes, name](ToyRun& run) {
    put(run.folder() / name, bytes());
    run.set("name_or_path", (run.folder() / name).string());
  };
}

// The toy model with its tensors changed.
std::function<void(ToyRun&)> model_with(const std::function<void(std::vector<Given>&)>& change) {
  return [change](ToyRun& run) {
    const Safetensors file(toy_denoiser());
    std::vector<Given> tensors;
    for (const StoredTensor& t : file.tensors()) tensors.push_back({t.name, file.read(t.name)});
    change(tensors);
    write_file(run.folder() / "model.safetensors", tensors);
    run.set("name_or_path", (run.folder() / "model.safetensors").string());
  };
}

Given& named(std::vector<Given>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &Given::name);
  if (found == tensors.end()) throw std::runtime_error("the toy model has no " + name);
  return *found;
}

void fill(HostTensor& tensor, float value) {
  const DType dtype = tensor.desc.dtype;
  const std::vector<float> values(static_cast<size_t>(tensor.desc.shape.numel()), value);
  tensor = as_type(floats(tensor.desc.shape, values), dtype);
}

// Data.

// The photos, copied so that they can be spoilt.
fs::path own_photos(ToyRun& run) {
  fs::copy(source / "examples" / "demo" / "photos", run.folder() / "photos");
  run.replace((source / "examples" / "demo" / "photos").string(), (run.folder() / "photos").string());
  return run.folder() / "photos";
}

void corrupt_photo(ToyRun& run) {
  const fs::path photo = own_photos(run) / "cat_03.jpg";
  put(photo, get(photo).substr(0, 200));
}

// Plugins.

void plugin_bytes(const ToyRun& run, const std::string& bytes) { put(run.folder() / "plugins" / "optim.so", bytes); }

void wrong_abi(ToyRun& run) {
  std::string image = get(plugins / "optim.so");
  const size_t note = image.find(std::string("lora-host\0\0\0", 12));  // owner, then two u16
  const uint16_t major = 99;
  std::memcpy(&image[note + 12], &major, 2);
  plugin_bytes(run, image);
}

// Outputs.

// A LoRA for layers that the toy model does not have, or not in this shape.
std::function<void(ToyRun&)> lora_of(const std::string& module, int64_t in) {
  return [module, in](ToyRun& run) {
    write_file(run.folder() / "lora.safetensors",
               {{module + ".lora_down.weight", counting({2, in})}, {module + ".lora_up.weight", counting({in, 2})}});
  };
}

constexpr auto nothing = [](ToyRun&) {};
std::function<void(ToyRun&)> set(const std::string& key, const std::string& value) {
  return [key, value](ToyRun& run) { run.set(key, value); };
}
std::function<void(ToyRun&)> replace(const std::string& text, const std::string& by) {
  return [text, by](ToyRun& run) { run.replace(text, by); };
}

const std::vector<std::string> use_plugins{"--plugin-dir", "FOLDER/plugins"};
const std::vector<std::string> sample_with_lora{
    "sample", "--lora", "FOLDER/lora.safetensors", "--prompt", "a photo", "--out", "FOLDER/a.png"};

const Case cases[] = {
    // The model's file.
    {"missing_file", model_at("none.safetensors"), 3, R"(model\.name_or_path: none\.safetensors: no such file)"},
    {"empty_file", model_bytes([] { return std::string(); }), 3,
     R"(model\.safetensors: 0 bytes, too short.*download it again)"},
    {"truncated", model_bytes([] { return get(toy_denoiser()).substr(0, 1 << 20); }), 3,
     R"(file ends at 1048576 bytes but the header promises \d+ \(last tensor \S+\)\. The file is cut short)"},
    {"truncated_header", model_bytes([] { return get(toy_denoiser()).substr(0, 100); }), 3,
     R"(cut short: download it again)"},
    {"header_over_limit", model_bytes([] { return std::string("\xff\xff\xff\x7f\0\0\0\0", 8) + std::string(64, ' '); }),
     3, R"(header of 2147483647 bytes, expected at most \d+)"},
    {"overlapping_tensors", model_bytes([] {
       return raw_file(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
           12);
     }),
     3, R"(tensor "b" starts at data byte 4, expected 8 .*tensors overlap)"},
    {"missing_tensor", model_with([](auto& tensors) {
       std::erase_if(tensors, [](const Given& t) { return t.name == "final_layer.linear.weight"; });
     }),
     3, R"(model\.safetensors: missing tensor final_layer\.linear\.weight)"},
    {"missing_block_tensor", model_with([](auto& tensors) {
       std::erase_if(tensors, [](const Given& t) { return t.name == "single_blocks.0.linear2.weight"; });
     }),
     3, R"(single_blocks\.0\.linear2\.weight)"},
    {"wrong_shape", model_with([](auto& tensors) {
       named(tensors, "txt_in.weight").tensor = counting({3, 5});
     }),
     3, R"(txt_in\.weight: expected .*, found \[3, 5\])"},
    {"wrong_block_shape", model_with([](auto& tensors) {
       named(tensors, "double_blocks.0.img_attn.proj.weight").tensor = counting({3, 5});
     }),
     3, R"(double_blocks\.0\.img_attn\.proj)"},
    {"wrong_model_for_the_plugin",
     [](ToyRun& run) {
       run.config() += "plugin: flux\n";
       run.set("name_or_path", toy_folder() / "ae.safetensors");
     },
     3, R"(ae\.safetensors: this is not a checkpoint of plugin 'flux': its marker tensor)"},
    {"model_that_nobody_knows", model_at(toy_folder() / "ae.safetensors"), 3,
     R"(no model plugin knows this checkpoint \(asked: )"},
    {"unknown_plugin", [](ToyRun& run) { run.config() += "plugin: fluxx\n"; }, 6,
     R"(no model plugin is called 'fluxx'\. Known: .*flux)"},
    {"folder_for_a_file", model_at(source / "examples"), 3, R"(examples: no model plugin knows this checkpoint)"},
    {"pickle", model_bytes([] { return std::string("PK\x03\x04 zipped pickle"); }, "model.ckpt"), 3,
     R"(model\.ckpt: .*pickle.*Convert it to safetensors)"},
    {"renamed_pickle", model_bytes([] { return std::string("PK\x03\x04 zipped pickle, long enough"); }), 3,
     R"(PyTorch pickle)"},
    {"lfs_pointer", model_bytes([] { return std::string("version https://git-lfs.github.com/spec/v1\n"); }), 3,
     R"(git lfs pull)"},
    {"missing_encoder_file", set("t5_path", "none.safetensors"), 3,
     R"(model\.t5_path: none\.safetensors does not exist)"},
    {"truncated_encoder",
     [](ToyRun& run) {
       put(run.folder() / "t5.safetensors", get(toy_folder() / "t5xxl.safetensors").substr(0, 1 << 20));
       run.set("t5_path", (run.folder() / "t5.safetensors").string());
     },
     3, R"(t5\.safetensors: file ends at 1048576 bytes)"},
    {"vae_for_an_encoder", set("t5_path", toy_folder() / "ae.safetensors"), 3,
     R"(model\.t5_path: .*ae\.safetensors holds no part of this model)"},
    {"encoder_not_given", replace("  t5_path: ", "  # "), 2, R"(model\.t5_path: text encoder 't5' is needed)"},
    {"vae_not_given",
     [](ToyRun& run) {
       run.replace("  vae_path: ", "  # ");
       fs::remove_all(run.folder() / "runs");
     },
     2, R"(model\.vae_path: the VAE is needed)"},
    {"nan_in_weights", model_with([](auto& tensors) { fill(named(tensors, "img_in.weight").tensor, NAN); }), 3,
     R"(step 1: the loss is not finite; nothing of this step was applied\.\s+\S+model\.safetensors: tensor "img_in\.weight" holds a NaN)"},
    {"integers_for_weights",
     model_with([](auto& tensors) {
       HostTensor& weight = named(tensors, "time_in.in_layer.weight").tensor;
       weight = HostTensor(Desc{DType::i32, weight.desc.shape});
     }),
     3,
     R"(tensor 'time_in\.in_layer\.weight' is int32 \[\d+, \d+\], expected floating numbers)",
     {"--dry-run"}},
    {"nan_in_an_encoder",
     [](ToyRun& run) {
       const Safetensors file(toy_folder() / "t5xxl.safetensors");
       std::vector<Given> tensors;
       for (const StoredTensor& t : file.tensors()) tensors.push_back({t.name, file.read(t.name)});
       fill(named(tensors, "encoder.block.0.layer.1.DenseReluDense.wi_0.weight").tensor, NAN);
       write_file(run.folder() / "t5.safetensors", tensors);
       run.set("t5_path", (run.folder() / "t5.safetensors").string());
       fs::remove_all(run.folder() / "runs");
     },
     5, R"(NaN or an infinity in `text`, computed in float32\. Their file may be damaged: fetch it anew)"},
    {"fp16_overflow",
     [](ToyRun& run) {
       model_with([](auto& tensors) { fill(named(tensors, "img_in.weight").tensor, 60000); })(run);
       run.set("dtype", "fp16");
     },
     5, R"(step \d+: .* not finite.*\s+first op with a NaN or infinity: \S+[\s\S]*train\.dtype: bf16)"},
    // The data.
    {"dataset_missing", set("- folder_path", "none"), 3, R"(dataset none: there is no such folder)"},
    {"dataset_is_a_file", set("- folder_path", toy_denoiser()), 3, R"(this is not a folder)"},
    {"dataset_empty",
     [](ToyRun& run) {
       fs::create_directory(run.folder() / "empty");
       run.set("- folder_path", (run.folder() / "empty").string());
     },
     3, R"(empty: expected images \(JPEG, PNG)"},
    {"corrupt_image_is_skipped",
     corrupt_photo,
     0,
     R"(cat_03\.jpg.*left out of the training set[\s\S]*4 samples, 1 skipped)",
     {"--dry-run"}},
    {"corrupt_image_in_a_run", corrupt_photo, 0, R"(cat_03\.jpg.*left out of the training set)"},
    {"corrupt_image_strict",
     [](ToyRun& run) {
       corrupt_photo(run);
       run.replace("    resolution: 64", "    strict: true\n    resolution: 64");
     },
     3, R"(cat_03\.jpg.*\[strict\])"},
    {"all_images_corrupt",
     [](ToyRun& run) {
       for (const auto& photo : fs::directory_iterator(own_photos(run)))
         if (photo.path().extension() == ".jpg") put(photo.path(), "no image");
     },
     3, R"(none of the 5 images can be used \(5 corrupt)"},
    {"caption_missing", [](ToyRun& run) { fs::remove(own_photos(run) / "cat_02.txt"); }, 3,
     R"(1 of 5 images have no caption: cat_02\.jpg \(add <name>\.txt beside each, or set default_caption, or missing_captions: empty\))"},
    {"caption_not_utf8", [](ToyRun& run) { put(own_photos(run) / "cat_02.txt", "caf\xe9"); }, 3,
     R"(cat_02\.txt.*UTF-8)"},
    // The configuration.
    {"unknown_key", replace("  lr: 1e-3", "  lrr: 1e-3"), 2,
     R"(train\.yaml:\d+:\d+: train\.lrr: unknown key\. Did you mean train\.lr\?)"},
    {"unknown_model_key", replace("  t5_path: ", "  t5_pth: "), 2,
     R"(train\.yaml:\d+:3: model\.t5_pth: unknown key\. Did you mean model\.t5_path\?)"},
    {"model_key_of_another_plugin", replace("  t5_path: ", "  clip_g_path: x\n  t5_path: "), 2,
     R"(train\.yaml:\d+:3: model\.clip_g_path: belongs to plugin hidream, sd35, sdxl, this model is of plugin flux\. Remove it)"},
    {"unknown_variant", replace("  t5_path: ", "  variant: shnell\n  t5_path: "), 2,
     R"(train\.yaml:\d+:3: model\.variant: must be dev, schnell, kontext, fill, found shnell\. Did you mean schnell\?)"},
    {"unknown_variant_by_flag",
     nothing,
     2,
     R"(--variant: model\.variant: must be dev, schnell, kontext, fill, found x)",
     {"--variant", "x"}},
    {"wrong_type", set("steps", "many"), 2, R"(train\.yaml:\d+:\d+: train\.steps: expected an integer, found many)"},
    {"nan_lr", set("lr", ".nan"), 2, R"(train\.lr: expected a number, found \.nan)"},
    {"infinite_lr", set("lr", "1e999"), 2, R"(train\.lr: expected a number, found 1e999)"},
    {"negative_lr", set("lr", "-1"), 2, R"(train\.lr: must be more than 0)"},
    {"no_yaml", replace("train:", "train: ["), 2, R"(train\.yaml:\d+:\d+: )"},
    {"config_missing", nothing, 2, R"(none\.yaml: cannot be opened: No such file)", {"--config", "none.yaml"}},
    {"config_is_a_pipe",
     [](ToyRun& run) { ::mkfifo((run.folder() / "pipe").c_str(), 0600); },
     2,
     R"(pipe: expected a file, found a pipe, which can be read once only: write it to a file)",
     {"--config", "FOLDER/pipe"}},
    {"prompt_not_utf8",
     nothing,
     2,
     R"(--prompt: byte 1 \(0xff\) is not valid UTF-8)",
     {"sample", "--prompt", "a\xff", "--out", "FOLDER/a.png"}},
    {"caption_with_zero_bytes",
     [](ToyRun& run) { put(own_photos(run) / "cat_02.txt", std::string("a\0 \0c\0a\0t\0", 10)); }, 3,
     R"(cat_02\.txt: byte 1 is 0, which is in no text \(a file of UTF-16\? save it as UTF-8\))"},
    {"config_is_a_folder", nothing, 2, R"(expected a file, found a directory)", {"--config", "FOLDER"}},
    {"unknown_flag", nothing, 2, R"(unknown argument --rnak\. Did you mean --rank\?)", {"--rnak", "3"}},
    {"unknown_optimizer", set("optimizer", "adamm"), 2,
     R"(train\.yaml:\d+:14: train\.optimizer: optimizer 'adamm' is in no plugin\. Did you mean adam\? Known: .*adamw)"},
    {"unknown_optimizer_of_a_phase",
     replace("  optimizer: adamw", "  optimizer: adamw\n  phases: [{until: 1}, {optimizer: adamm}]"), 2,
     R"(train\.yaml:\d+:36: train\.phases: optimizer 'adamm' is in no plugin\. Did you mean adam\?)"},
    {"unknown_adapter", replace("  linear: 2", "  linear: 2\n  type: lohaa"), 2,
     R"(train\.yaml:\d+:9: network\.type: adapter 'lohaa' is in no plugin\. Did you mean loha\?)"},
    {"unknown_scheduler", [](ToyRun& run) { run.replace("sample:\n", "sample:\n  scheduler: karas\n"); }, 2,
     R"(train\.yaml:\d+:14: sample\.scheduler: schedule 'karas' is in no plugin\. Did you mean karras\?)"},
    {"unknown_optimizer_option", replace("  optimizer: adamw", "  optimizer: adamw\n  optimizer_params: {momentum: 1}"),
     2, R"(\.yaml:\d+:\d+: train\.optimizer_params\.momentum: optimizer 'adamw' has no such option\. Known: )"},
    {"optimizer_option_out_of_range",
     replace("  optimizer: adamw", "  optimizer: adamw\n  optimizer_params: {betas: [0.9, 1.5]}"), 2,
     R"(\.yaml:\d+:\d+: train\.optimizer_params\.betas: must be at least 0 and less than 1, found 1\.5)"},
    {"unknown_sampler",
     [](ToyRun& run) {
       run.set("prompts", "[a photo]").set("sample_every", "1").replace("sample:\n", "sample:\n  sampler: eulerr\n");
     },
     2,
     R"(train\.yaml:\d+:12: sample\.sampler: sampler 'eulerr' is in no plugin\. Did you mean euler\? Known: .*euler)"},
    {"width_not_a_multiple",
     [](ToyRun& run) { run.set("prompts", "[a photo]").set("sample_every", "1").set("width", "72"); }, 2,
     R"(sample\.width and sample\.height must be multiples of \d+ for this model, are 72 and 64)"},
    {"no_module_left", replace("  linear: 2", "  linear: 2\n  network_kwargs: {only_if_contains: [nothing]}"), 2,
     R"(no module is left to train)"},
    {"resume_from_nowhere",
     nothing,
     3,
     R"(--resume \S+none: expected the folder of a run, found nothing there)",
     {"--resume", "FOLDER/none"}},
    {"resume_from_an_empty_folder",
     [](ToyRun& run) { fs::create_directory(run.folder() / "empty"); },
     3,
     R"(empty: there is no valid checkpoint to resume from)",
     {"--resume", "FOLDER/empty"}},
    // The machine; GPUs are in device_error_test.cpp.
    {"memory_limit", [](ToyRun& run) { run.config() += "memory: {budget: 2MiB}\n"; }, 4,
     R"(the run does not fit: 2\.0 MiB of memory may be used, and it takes [\d.]+ MiB at least: weights .* with \d+% of what blocks can make again recomputed, [\d.]+ MiB of activations and [\d.]+ MiB of optimizer states in host memory and the weights of (\d+) of \1 blocks streamed from there\nWhat would give most:\n  )"},
    {"output_under_a_file",
     [](ToyRun& run) {
       put(run.folder() / "file", "");
       run.replace((run.folder() / "runs").string(), (run.folder() / "file/runs").string());
     },
     4, R"(file/runs/toy: .*file is a file, expected a folder\. Choose another training_folder)"},
    {"output_that_cannot_be_made",
     [](ToyRun& run) {
       run.replace("training_folder: " + (run.folder() / "runs").string(), "training_folder: /proc/lora-host");
     },
     4, R"(/proc/lora-host/toy: .*hoose another)"},
    {"disk_too_small_for_the_run",
     [](ToyRun& run) {
       run.set("linear", "256")
           .set("steps", "900000000")
           .set("save_every", "1")
           .set("max_step_saves_to_keep", "1000000");
     },
     4,
     R"(the run needs [\d.]+ MiB of disk, \S+ has [\d.]+ MiB free\. .*Free space there, choose another training_folder)"},
    {"file_size_limit",
     nothing,
     4,
     R"(state/000000002\.safetensors: .* failed: File too large)",
     {},
     {.shell_prefix = "ulimit -f 16"}},
    // Plugins.
    {"plugin_of_another_abi", wrong_abi, 6,
     R"(plugins/optim\.so: needs plugin ABI 99\.\d+, this host has \d+\.\d+ to \d+\.\d+; update lora-host)",
     use_plugins},
    {"plugin_truncated", [](ToyRun& run) { plugin_bytes(run, get(plugins / "optim.so").substr(0, 200)); }, 6,
     R"(plugins/optim\.so: .*truncated)", use_plugins},
    {"plugin_cut_in_its_code",
     // Headers and note are whole, the code is not; a build with debug information is mostly not code.
     [](ToyRun& run) { plugin_bytes(run, get(plugins / "optim.so").substr(0, 8192)); }, 6,
     R"(plugins/optim\.so: truncated: its code or data)", use_plugins},
    {"plugin_not_elf", [](ToyRun& run) { plugin_bytes(run, std::string(500, 'x')); }, 6,
     R"(plugins/optim\.so: .*not an ELF)", use_plugins},
    {"plugin_folder_missing",
     nothing,
     6,
     R"(none: cannot list this plugin directory: No such file)",
     {"--plugin-dir", "FOLDER/none"}},
    // Other commands; the first word replaces `train`.
    {"lora_of_another_model", lora_of("lora_unet_down_blocks_0_to_q", 8), 3,
     R"(lora_unet_down_blocks_0_to_q: no layer of this model has this name)", sample_with_lora},
    {"lora_of_another_size", lora_of("lora_unet_img_in", 8), 3,
     R"(lora_unet_img_in: it changes \[8, 8\], the weight is \[256, 64\])", sample_with_lora},
    {"lora_missing", nothing, 3, R"(lora\.safetensors: cannot be opened)", sample_with_lora},
    {"lora_is_a_model", [](ToyRun& run) { fs::copy(toy_denoiser(), run.folder() / "lora.safetensors"); }, 3,
     R"(lora\.safetensors: not a LoRA: none of its \d+ tensors \(the first is [^)]+\) is part of a known kind of adapter)",
     sample_with_lora},
    {"sampler_of_sample",
     nothing,
     2,
     R"(sampler 'eulerr' is in no plugin)",
     {"sample", "--prompt", "a", "--sampler", "eulerr", "--out", "FOLDER/a.png"}},
    {"picture_of_another_format",
     nothing,
     2,
     R"(--out \S+/a\.jpg: images are written as PNG\. Give a name that ends in \.png, or a folder)",
     {"sample", "--prompt", "a photo", "--out", "FOLDER/a.jpg"}},
    {"picture_under_a_file",
     [](ToyRun& run) { put(run.folder() / "file", ""); },
     4,
     R"(file)",
     {"sample", "--prompt", "a photo", "--out", "FOLDER/file/a.png"}},
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class WrongInput : public ::testing::TestWithParam<Case> {};

TEST_P(WrongInput, HasItsCodeAndText) {
  const Case& c = GetParam();
  ToyRun run;
  run.set("steps", "2");
  c.spoil(run);
  std::vector<std::string> words = run.command(), more = c.arguments;
  for (std::string& word : more)
    if (word.starts_with("FOLDER")) word.replace(0, 6, run.folder().string());
  if (!more.empty() && !more[0].starts_with("-")) {
    words[0] = more[0];
    more.erase(more.begin());
  }
  if (!more.empty() && more[0] == "--config") words.resize(1);
  words.insert(words.end(), more.begin(), more.end());
  const HostResult result = run_host(words, c.options);
  EXPECT_EQ(result.code, c.code) << "signal " << result.signal << "\n" << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex(c.text))) << c.text << "\n" << result.output;
  EXPECT_EQ(result.output.find("internal error"), std::string::npos) << result.output;
  EXPECT_EQ(result.code != 0, result.output.find("lora-host: error: ") != std::string::npos) << result.output;
  EXPECT_EQ(fs::exists(run.lora()), c.code == 0 && c.arguments.empty());
}

INSTANTIATE_TEST_SUITE_P(All, WrongInput, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

// A real full disk, where this user may mount one.
TEST(FullDisk, IsRefusedBeforeTheFirstStep) {
  ToyRun run;
  const fs::path disk = run.folder() / "disk";
  fs::create_directory(disk);
  if (::mount("lora-test", disk.c_str(), "tmpfs", 0, "size=128k") != 0) GTEST_SKIP() << "mounting is not allowed here";
  run.replace("training_folder: " + (run.folder() / "runs").string(), "training_folder: " + disk.string());
  const HostResult result = run.train();
  ::umount2(disk.c_str(), MNT_DETACH);
  EXPECT_EQ(result.code, 4) << result.output;
  EXPECT_THAT(result.output, ::testing::HasSubstr("MiB of disk, " + disk.string() + " has 0.1 MiB free"))
      << result.output;
}

// A disk that fills up while training: the checkpoint before stays and the run can go on later.
TEST(FullDisk, KeepsTheLastCheckpoint) {
  ToyRun run;
  run.set("steps", "2").set("save_every", "1");
  const HostResult failed = run_host(run.command(), {.shell_prefix = "ulimit -f 16"});
  EXPECT_EQ(failed.code, 4) << failed.output;
  EXPECT_FALSE(fs::exists(run.lora()));
  for (const auto& entry : fs::recursive_directory_iterator(run.output())) EXPECT_NE(entry.path().extension(), ".tmp");
  EXPECT_EQ(run.train({"--resume"}).code, 0);
}

// Nobody reads what the run says.
TEST(ClosedOutput, DoesNotStopTheRun) {
  ToyRun run;
  run.set("steps", "2");
  HostOptions options{.shell_prefix = "exec >/dev/full 2>&1"};
  EXPECT_EQ(run_host(run.command(), options).code, 0);
  EXPECT_TRUE(fs::exists(run.lora()));
}

// With the numbers of standard output and error free, a file of the run would get them, and what is printed with it.
TEST(ClosedOutput, NothingIsPrintedIntoAFile) {
  const TempDir dir;
  write_file(dir.path() / "lora.safetensors", {{"lora_unet_img_in.lora_down.weight", counting({2, 64})},
                                               {"lora_unet_img_in.lora_up.weight", counting({256, 2})}});
  const auto merge = [&](const char* out, const char* prefix) {
    const HostResult result =
        run_host({"merge", "--lora", (dir.path() / "lora.safetensors").string(), "--model", toy_denoiser().string(),
                  "--into", "checkpoint", "--out", (dir.path() / out).string()},
                 {.shell_prefix = prefix});
    EXPECT_EQ(result.code, 0) << prefix << result.output;
    return fs::exists(dir.path() / out) ? get(dir.path() / out) : "";
  };
  const std::string open = merge("open.safetensors", "true");
  EXPECT_FALSE(open.empty());
  EXPECT_EQ(merge("closed.safetensors", "exec <&- >&- 2>&-"), open);
  const HostResult check =
      run_host({"check", (source / "examples/demo/photos").string(), "--out", (dir.path() / "page.html").string()},
               {.shell_prefix = "exec <&- >&- 2>&-"});
  EXPECT_EQ(check.code, 0) << "every picture is decoded in a process of its own";
}

TEST(LostOutput, HasAnExitCodeOfItsOwn) {
  const TempDir dir;
  const fs::path errors = dir.path() / "errors";
  const auto ends_with = [&](const std::string& prefix, const std::vector<std::string>& command) {
    return run_host(command, {.shell_prefix = prefix + " 2>" + errors.string()}).code;
  };
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"inspect", toy_denoiser().string()}, {"--help"}}) {
    EXPECT_EQ(ends_with("exec >/dev/full", command), 4) << command[0];
    EXPECT_NE(get(errors).find("could not be written: No space left on device"), std::string::npos) << get(errors);
    // The reader of the pipe ends before anything is written.
    const std::string fifo = (dir.path() / ("pipe" + command[0])).string();
    EXPECT_EQ(ends_with("mkfifo " + fifo + "; (true <" + fifo + " &); exec >" + fifo + "; sleep 0.2; exec", command),
              141)
        << command[0];
    EXPECT_EQ(get(errors), "");
  }
}

}  // namespace
}  // namespace lh::test::wrong_input_test
