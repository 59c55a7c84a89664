// Files of musubi-tuner run by the command, as its guides have them, with small models in the place of the paths:
// planned, trained for a few steps, and written as a file of ours that trains the same.
#include <gmock/gmock.h>

#include <algorithm>

#include "data/video.h"
#include "support/image_files.h"
#include "support/paths.h"
#include "support/qwen_image_shapes.h"
#include "support/run_host.h"
#include "support/video_files.h"
#include "support/wan_shapes.h"
#include "support/z_image_shapes.h"

namespace lh::test::musubi_jobs_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// Arguments that have no effect here, whatever the model.
constexpr const char* inert = R"(
[without_effect]
sdpa = true
flash_attn = false
flash3 = false
xformers = false
split_attn = true
compile = false
compile_backend = "inductor"
compile_mode = "default"
compile_dynamic = "auto"
compile_fullgraph = false
compile_cache_size_limit = 32
cuda_allow_tf32 = true
cuda_cudnn_benchmark = true
dynamo_backend = "NO"
dynamo_mode = "default"
max_data_loader_n_workers = 2
persistent_data_loader_workers = true
gradient_checkpointing_cpu_offload = false
use_pinned_memory_for_block_swap = true
block_swap_h2d_only = false
block_swap_ring_size = 2
disable_numpy_memmap = true
guidance_scale = 1.0
vae_dtype = "bfloat16"
logging_dir = "logs"
log_with = "tensorboard"
metadata_title = "t"
metadata_reso = "512,512"
metadata_arch = "a"
no_metadata = false
training_comment = "mine"
save_state = true
save_state_on_train_end = true
)";

struct Job {
  const char *name, *training, *datasets;
  const char* more;                  // of the command
  std::vector<const char*> planned;  // what --dry-run says
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

const Job wan = {"wan",
                 R"(
dit = "FOLDER/model.safetensors"
vae = "FOLDER/model.safetensors"
t5 = "FOLDER/model.safetensors"
task = "t2v-1.3B"
vae_cache_cpu = true
mixed_precision = "bf16"
fp8_base = true
fp8_t5 = true
optimizer_type = "adamw8bit"
optimizer_args = ["weight_decay=0.1"]
learning_rate = 2e-4
lr_scheduler = "constant_with_warmup"
lr_warmup_steps = 1
gradient_checkpointing = true
gradient_accumulation_steps = 1
network_module = "networks.lora_wan"
network_dim = 4
network_alpha = 2
network_args = ["loraplus_lr_ratio=4", "exclude_patterns=[r'.*ffn.*']"]
timestep_sampling = "shift"
discrete_flow_shift = 3.0
min_timestep = 500
max_timestep = 1000
preserve_distribution_shape = true
max_train_steps = 4
save_every_n_steps = 2
save_last_n_steps = 4
sample_prompts = "FOLDER/prompts.txt"
sample_every_n_steps = 2
sample_at_first = true
seed = 42
output_dir = "FOLDER/out"
output_name = "mine"
)",
                 R"(
[general]
resolution = [32, 32]
caption_extension = ".txt"
batch_size = 1
enable_bucket = true
[[datasets]]
video_directory = "FOLDER/films"
cache_directory = "FOLDER/cache"
target_frames = [1, 5, 9]
frame_extraction = "head"
[[datasets]]
video_directory = "FOLDER/films"
cache_directory = "FOLDER/cache2"
target_frames = [5]
frame_extraction = "slide"
frame_stride = 4
num_repeats = 2
[[datasets]]
video_jsonl_file = "FOLDER/films.jsonl"
cache_directory = "FOLDER/cache3"
frame_extraction = "full"
max_frames = 8
source_fps = 24.0
)",
                 "share/tokenizers/t5",
                 // Films of 9 and 12 frames: heads of 1, 5 and 9; of 5 two from every fourth, twice; of 6 and 8 that
                 // are kept five.
                 {"bucket   32 x 32: 2 per epoch", "bucket   5 frames of 32 x 32: 12 per epoch",
                  "bucket   9 frames of 32 x 32: 2 per epoch"}};

const Job z_image = {"z_image",
                     R"(
dit = "FOLDER/model.safetensors"
vae = "FOLDER/model.safetensors"
text_encoder = "FOLDER/model.safetensors"
fp8_llm = true
use_32bit_attention = false
mixed_precision = "bf16"
weighting_scheme = "none"
timestep_sampling = "shift"
discrete_flow_shift = 2.0
optimizer_type = "adamw8bit"
learning_rate = 1e-4
network_module = "networks.lora_zimage"
network_dim = 4
max_train_epochs = 1
save_every_n_epochs = 1
save_last_n_epochs = 3
blocks_to_swap = 1
output_dir = "FOLDER/out"
output_name = "mine"
)",
                     R"(
[general]
resolution = [64, 64]
caption_extension = ".txt"
enable_bucket = true
bucket_no_upscale = true
[[datasets]]
image_directory = "FOLDER/photos"
cache_directory = "FOLDER/cache"
num_repeats = 2
batch_size = 3
[[datasets]]
image_jsonl_file = "FOLDER/list.jsonl"
cache_directory = "FOLDER/cache2"
)",
                     "tests/data/qwen_small",
                     {"bucket   64 x 64: 2 per epoch, in batches of 1",
                      "bucket   64 x 64: 4 per epoch, in batches of 3", "epochs     4 batches each; 4 steps are 1.00"}};

const Job qwen_image = {"qwen_image",
                        R"(
dit = "FOLDER/model.safetensors"
vae = "FOLDER/model.safetensors"
text_encoder = "FOLDER/model.safetensors"
model_version = "edit"
dataset_config = "FOLDER/y.toml"
mixed_precision = "bf16"
timestep_sampling = "qwen_shift"
weighting_scheme = "none"
optimizer_type = "torch.optim.AdamW"
learning_rate = 1e-4
network_module = "networks.loha"
network_dim = 4
max_train_steps = 2
output_dir = "FOLDER/out"
output_name = "mine"
)",
                        R"(
[[datasets]]
image_directory = "FOLDER/photos"
control_directory = "FOLDER/photos"
caption_extension = ".txt"
resolution = 64
[[datasets]]
image_jsonl_file = "FOLDER/edits.jsonl"
resolution = [64, 64]
)",
                        "tests/data/qwen_small",
                        {"bucket   64 x 64: 3 per epoch"}};

class MusubiJobs : public testing::TestWithParam<Job> {};

TEST_P(MusubiJobs, AreTrained) {
  const Job& job = GetParam();
  const std::string name = job.name;
  if (name == "wan" && !reads_videos()) GTEST_SKIP() << "no FFmpeg: " << why_no_videos();
  const TempDir dir;
  (name == "wan"       ? write_small_wan
   : name == "z_image" ? [](const fs::path& path) { write_small_z_image(path); }
                       : write_small_qwen_image)(dir / "model.safetensors");
  for (const char* letter : {"a", "b"}) {
    fs::create_directories(dir / "films");
    fs::create_directories(dir / "photos");
    const std::string stem = letter;
    write_file(dir / "films" / (stem + ".avi"), avi(film(*letter == 'a' ? 9 : 12)));
    write_file(dir / "photos" / (stem + ".png"), encode_png(test_picture(64 + *letter % 8, 64)));
    for (const char* folder : {"films", "photos"}) put(dir / folder / (stem + ".txt"), "sks, " + stem);
  }
  const auto placed = [&](std::string text) {
    for (size_t at; (at = text.find("FOLDER")) != text.npos;) text.replace(at, 6, dir.path().string());
    return text;
  };
  put(dir / "prompts.txt", "# one a line\na dog --w 64 --h 64 --f 5 --d 3 --l 2 --s 2 --g 1 --fs 3 --n bad\n");
  put(dir / "list.jsonl", placed("{\"image_path\": \"FOLDER/photos/a.png\", \"caption\": \"one\"}\n"
                                 "{\"image_path\": \"FOLDER/photos/b.png\", \"caption\": \"two\"}\n"));
  put(dir / "edits.jsonl",
      placed("{\"image_path\": \"FOLDER/photos/a.png\", \"control_path\": \"FOLDER/photos/b.png\", "
             "\"caption\": \"one\"}\n"));
  put(dir / "films.jsonl", placed("{\"video_path\": \"FOLDER/films/a.avi\", \"caption\": \"one\"}\n"
                                  "{\"video_path\": \"FOLDER/films/b.avi\", \"caption\": \"two\"}\n"));
  put(dir / "x.toml", placed(std::string(job.training) + inert));
  put(dir / "y.toml", placed(job.datasets));
  const std::vector<std::string> flags{"--device", "cpu", "--tokenizer", std::string(source_dir()) + "/" + job.more};
  const auto run = [&](std::vector<std::string> command, const std::vector<std::string>& more = {}) {
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), more.begin(), more.end());
    return expect_trained(run_host(command)).output;
  };
  std::vector<std::string> files{"--config", (dir / "x.toml").string()};
  const bool named = std::string(job.training).find("dataset_config") != std::string::npos;
  if (!named) files.insert(files.end(), {"--dataset_config", (dir / "y.toml").string()});
  std::vector<std::string> train{"train"};
  train.insert(train.end(), files.begin(), files.end());
  const std::string plan = run(train, {"--dry-run"});
  EXPECT_THAT(plan, Not(HasSubstr("warning")));
  for (const char* line : job.planned) EXPECT_THAT(plan, HasSubstr(line));
  EXPECT_THAT(run(train), Not(HasSubstr("warning")));
  const fs::path lora = dir / "out" / "mine" / "mine.safetensors";
  EXPECT_GT(tensors_of(lora).size(), 0u);
  EXPECT_GE(std::ranges::count(get(dir / "out" / "mine" / "metrics.csv"), '\n'), 3);

  // The same as a file of ours.
  const std::string trained = get(lora);
  std::vector<std::string> init{"init", "--from", (dir / "x.toml").string(), "--out", (dir / "x.yaml").string()};
  if (!named) init.insert(init.end(), {"--dataset_config", (dir / "y.toml").string()});
  expect_trained(run_host(init));
  fs::remove_all(dir / "out");
  run({"train", "--config", (dir / "x.yaml").string()});
  EXPECT_EQ(get(lora), trained);
}

INSTANTIATE_TEST_SUITE_P(Files, MusubiJobs, testing::Values(wan, z_image, qwen_image),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lh::test::musubi_jobs_test
