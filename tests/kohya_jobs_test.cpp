// Files of kohya's scripts run by the command: every key of their datasets, and every training argument that is
// honoured or has no effect, with small models in the place of the paths. Each run is planned and trained for two
// steps.
#include <gmock/gmock.h>

#include <algorithm>

#include "support/anima_shapes.h"
#include "support/hunyuan_image_shapes.h"
#include "support/image_files.h"
#include "support/lumina2_shapes.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/sd15_shapes.h"

namespace lh::test::kohya_jobs_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// Arguments that have no effect here, whatever the model.
constexpr const char* inert = R"(
[without_effect]
cache_latents = true
cache_latents_to_disk = true
cache_text_encoder_outputs_to_disk = false
skip_cache_check = true
vae_batch_size = 2
highvram = true
lowvram = false
lowram = true
tokenizer_cache_dir = "t"
cpu_offload_checkpointing = false
text_encoder_batch_size = 4
xformers = true
sdpa = true
mem_eff_attn = false
split_mode = false
max_data_loader_n_workers = 2
persistent_data_loader_workers = true
torch_compile = false
dynamo_backend = "inductor"
disable_mmap_load_safetensors = true
no_half_vae = true
ddp_timeout = 10
ddp_gradient_as_bucket_view = true
ddp_static_graph = true
logging_dir = "logs"
log_prefix = "x"
log_tracker_name = "x"
log_tracker_config = "x.toml"
log_config = true
wandb_run_name = "x"
huggingface_repo_type = "model"
async_upload = false
use_safetensors = true
output_config = false
base_weights_multiplier = [1.0]
skip_until_initial_step = false
no_metadata = false
training_comment = "mine"
metadata_title = "t"
metadata_author = "a"
metadata_description = "d"
metadata_license = "l"
metadata_tags = "a,b"
save_state = true
save_state_on_train_end = true
save_last_n_steps_state = 1
save_last_n_epochs_state = 1
bucket_no_upscale = true
min_bucket_reso = 32
max_bucket_reso = 128
bucket_reso_steps = 32
console_log_level = "INFO"
console_log_file = "x.log"
console_log_simple = true
network_multiplier = 1.0
save_model_as = "safetensors"
debug_dataset = false
)";

struct Job {
  const char *name, *training, *datasets;  // datasets empty: all is in the first
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

// Stable Diffusion XL with its text encoders: what is of models of discrete timesteps, of captions and their encoders,
// of convolutions, of noise and losses; regularization images, images that are set apart, captions in one file.
const Job xl = {"xl", R"(
pretrained_model_name_or_path = "FOLDER/xl.safetensors"
output_dir = "FOLDER/out"
output_name = "mine"
save_precision = "fp16"
save_every_n_steps = 1
save_last_n_steps = 2
sample_every_n_steps = 1
sample_at_first = true
sample_sampler = "euler_a"
sample_prompts = "FOLDER/prompts.txt"
[network]
network_module = "networks.lora"
network_dim = 4
network_alpha = 2
network_dropout = 0.1
network_args = ["conv_dim=2", "conv_alpha=1", "rank_dropout=0.1", "module_dropout=0.1", "loraplus_lr_ratio=4"]
scale_weight_norms = 1.0
[training]
learning_rate = 1e-4
unet_lr = 2e-4
text_encoder_lr = [5e-5, 1e-5]
optimizer_type = "AdamW"
optimizer_args = ["weight_decay=0.1", "betas=0.9,0.99"]
lr_scheduler = "cosine_with_restarts"
lr_warmup_steps = 1
lr_scheduler_num_cycles = 2
max_train_steps = 2
train_batch_size = 1
gradient_accumulation_steps = 1
gradient_checkpointing = true
max_grad_norm = 1.0
mixed_precision = "no"
seed = 7
max_token_length = 150
min_snr_gamma = 5.0
noise_offset = 0.05
multires_noise_iterations = 3
multires_noise_discount = 0.3
ip_noise_gamma = 0.1
ip_noise_gamma_random_strength = true
loss_type = "huber"
huber_schedule = "snr"
huber_c = 0.1
huber_scale = 1.0
min_timestep = 10
max_timestep = 990
prior_loss_weight = 0.5
validate_every_n_steps = 1
validate_every_n_epochs = 1
)",
                R"(
[general]
shuffle_caption = true
keep_tokens = 1
caption_extension = ".txt"
enable_bucket = true
min_bucket_reso = 32
max_bucket_reso = 128
bucket_reso_steps = 32
bucket_no_upscale = true
validation_split = 0.25
validation_seed = 3
[[datasets]]
resolution = 64
batch_size = 2
network_multiplier = 1.0
caption_separator = ","
secondary_separator = ";;;"
keep_tokens_separator = "|||"
enable_wildcard = true
  [[datasets.subsets]]
  image_dir = "FOLDER/photos"
  num_repeats = 2
  class_tokens = "sks dog"
  caption_prefix = "a photo, "
  caption_suffix = ", sharp"
  caption_dropout_rate = 0.1
  caption_dropout_every_n_epochs = 3
  caption_tag_dropout_rate = 0.1
  token_warmup_min = 1
  token_warmup_step = 2
  flip_aug = true
  color_aug = true
  random_crop = true
  alpha_mask = true
  cache_info = true
  custom_attributes = {mine = "x"}
  [[datasets.subsets]]
  image_dir = "FOLDER/reg"
  is_reg = true
  class_tokens = "dog"
[[datasets]]
resolution = [64, 64]
  [[datasets.subsets]]
  image_dir = "FOLDER/photos"
  metadata_file = "FOLDER/captions.json"
)"};

// Flux.1: what is of flow matching, of large models and of masks.
const Job flow = {"flow", R"(
pretrained_model_name_or_path = "TOY/flux_toy.safetensors"
ae = "TOY/ae.safetensors"
clip_l = "TOY/clip_l.safetensors"
t5xxl = "TOY/t5xxl.safetensors"
model_type = "flux"
output_dir = "FOLDER/out"
output_name = "mine"
network_module = "networks.lora_flux"
network_dim = 4
network_train_unet_only = true
cache_text_encoder_outputs = true
learning_rate = 1e-4
optimizer_type = "AdamW8bit"
lr_scheduler = "polynomial"
lr_scheduler_power = 2
max_train_steps = 2
mixed_precision = "bf16"
save_precision = "bf16"
fp8_base = true
blocks_to_swap = 1
timestep_sampling = "shift"
discrete_flow_shift = 3.1582
sigmoid_scale = 1.0
weighting_scheme = "logit_normal"
logit_mean = 0.0
logit_std = 1.0
mode_scale = 1.29
model_prediction_type = "raw"
guidance_scale = 1.0
loss_type = "l2"
masked_loss = true
t5xxl_device = "cpu"
t5xxl_dtype = "bf16"
save_clip = false
save_t5xxl = false
)",
                  R"(
[[datasets]]
resolution = 64
caption_extension = ".txt"
  [[datasets.subsets]]
  image_dir = "FOLDER/photos"
  conditioning_data_dir = "FOLDER/masks"
)"};

// Without a file of datasets: folders that say repeats and class, and epochs.
const Job folders = {"folders", R"(
pretrained_model_name_or_path = "FOLDER/xl.safetensors"
vae = "FOLDER/xl.safetensors"
output_dir = "FOLDER/out"
output_name = "mine"
train_data_dir = "FOLDER/classes"
reg_data_dir = "FOLDER/reg_classes"
resolution = "64,64"
enable_bucket = true
shuffle_caption = false
caption_extension = ".txt"
network_module = "lycoris.kohya"
network_args = ["algo=lokr", "factor=4"]
network_dim = 4
network_alpha = 4
network_weights = ""
network_train_unet_only = true
learning_rate = 1e-4
optimizer_type = "Prodigy"
lr_scheduler = "inverse_sqrt"
lr_scheduler_timescale = 10
lr_warmup_steps = 0.5
lr_decay_steps = 0.5
lr_scheduler_args = []
max_train_epochs = 1
save_every_n_epochs = 1
save_last_n_epochs = 2
sample_every_n_epochs = 1
sample_prompts = "FOLDER/prompts.txt"
mixed_precision = "no"
debiased_estimation_loss = true
validation_split = 0.0
)",
                     ""};

// Of the script for the first models, whose arguments say which these are.
const Job sd = {"sd", R"(
pretrained_model_name_or_path = "FOLDER/sd.safetensors"
output_dir = "FOLDER/out"
output_name = "mine"
train_data_dir = "FOLDER/classes"
resolution = 64
caption_extension = ".txt"
v2 = false
v_parameterization = true
clip_skip = 2
max_token_length = 150
network_module = "networks.lora"
network_args = ["conv_dim=2", "conv_alpha=1"]
network_dim = 4
network_alpha = 4
unet_lr = 1e-4
text_encoder_lr = 1e-5
optimizer_type = "AdamW"
max_train_steps = 2
mixed_precision = "no"
min_snr_gamma = 5
noise_offset = 0.05
)",
                ""};

// Of a model whose text a language model reads, and an adapter behind it.
const Job anima = {"anima", R"(
pretrained_model_name_or_path = "FOLDER/anima.safetensors"
qwen3 = "FOLDER/anima.safetensors"
vae = "FOLDER/anima.safetensors"
llm_adapter_path = "FOLDER/anima.safetensors"
t5_tokenizer_path = "SOURCE/share/tokenizers/t5"
qwen3_max_token_length = 512
t5_max_token_length = 512
output_dir = "FOLDER/out"
output_name = "mine"
network_module = "networks.lora_anima"
network_dim = 4
network_train_unet_only = true
cache_text_encoder_outputs = true
learning_rate = 1e-4
optimizer_type = "AdamW8bit"
max_train_steps = 2
mixed_precision = "bf16"
timestep_sampling = "sigmoid"
sigmoid_scale = 1.0
discrete_flow_shift = 1.0
weighting_scheme = "uniform"
attn_mode = "torch"
split_attn = false
vae_chunk_size = 64
vae_disable_cache = true
unsloth_offload_checkpointing = false
)",
                   R"(
[[datasets]]
resolution = 64
caption_extension = ".txt"
  [[datasets.subsets]]
  image_dir = "FOLDER/photos"
)"};

// Its tokenizer has no argument there.
const Job lumina2 = {"lumina2", R"(
pretrained_model_name_or_path = "FOLDER/lumina2.safetensors"
gemma2 = "FOLDER/lumina2.safetensors"
ae = "FOLDER/lumina2.safetensors"
gemma2_max_token_length = 256
system_prompt = "Draw this."
output_dir = "FOLDER/out"
output_name = "mine"
network_module = "networks.lora_lumina"
network_dim = 4
network_train_unet_only = true
cache_text_encoder_outputs = true
learning_rate = 1e-4
optimizer_type = "AdamW"
max_train_steps = 2
mixed_precision = "bf16"
timestep_sampling = "nextdit_shift"
discrete_flow_shift = 6.0
model_prediction_type = "raw"
use_flash_attn = true
use_sage_attn = false
sample_batch_size = 1
)",
                     R"(
[[datasets]]
resolution = 64
caption_extension = ".txt"
  [[datasets.subsets]]
  image_dir = "FOLDER/photos"
)"};

// As the guide of its script has it.
const Job hunyuan_image = {"hunyuan_image", R"(
pretrained_model_name_or_path = "FOLDER/hunyuan_image.safetensors"
text_encoder = "FOLDER/hunyuan_image.safetensors"
byt5 = "FOLDER/hunyuan_image.safetensors"
vae = "FOLDER/hunyuan_image.safetensors"
output_dir = "FOLDER/out"
output_name = "mine"
save_model_as = "safetensors"
network_module = "networks.lora_hunyuan_image"
network_dim = 4
network_alpha = 1
network_train_unet_only = true
learning_rate = 1e-4
optimizer_type = "AdamW8bit"
lr_scheduler = "constant"
attn_mode = "torch"
split_attn = true
max_train_steps = 2
mixed_precision = "bf16"
gradient_checkpointing = true
model_prediction_type = "raw"
discrete_flow_shift = 5.0
fp8_scaled = true
fp8_vl = true
text_encoder_cpu = true
cache_text_encoder_outputs = true
cache_latents = true
)",
                           R"(
[[datasets]]
resolution = 64
caption_extension = ".txt"
  [[datasets.subsets]]
  image_dir = "FOLDER/photos"
)"};

class KohyaJobs : public testing::TestWithParam<Job> {};

TEST_P(KohyaJobs, AreTrained) {
  const TempDir dir;
  write_small_sdxl(dir / "xl.safetensors");
  write_small_sd15(dir / "sd.safetensors");
  if (GetParam().name == std::string("anima")) write_anima_of_all_words(dir / "anima.safetensors");
  if (GetParam().name == std::string("lumina2")) write_small_lumina2(dir / "lumina2.safetensors");
  if (GetParam().name == std::string("hunyuan_image"))
    write_small_hunyuan_image(dir / "hunyuan_image.safetensors", true);
  const auto pictures = [&](const std::string& folder, std::initializer_list<const char*> names) {
    fs::create_directories(dir / folder);
    for (const char* name : names) {
      write_file(dir / folder / (std::string(name) + ".png"), encode_png(test_picture(64 + *name % 8, 64)));
      put(dir / folder / (std::string(name) + ".txt"), "sks ||| {red|blue}, tree;;;sky");
    }
  };
  pictures("photos", {"a", "b", "c", "d"});
  pictures("masks", {"a", "b", "c", "d"});
  pictures("reg", {"r"});
  pictures("classes/1_sks dog", {"a", "b"});
  pictures("reg_classes/1_dog", {"r"});
  put(dir / "captions.json", R"({"a": {"caption": "one"}, "b": {"caption": "two"}, "c": {"caption": "three"},
                                 "d": {"caption": "four"}})");
  put(dir / "prompts.txt", "# one a line\na dog --w 64 --h 64 --d 3 --l 2 --s 2 --n bad\n");
  const auto placed = [&](std::string text) {
    for (const auto& [word, path] : {std::pair<std::string, std::string>{"FOLDER", dir.path().string()},
                                     {"TOY", toy_folder().string()},
                                     {"SOURCE", std::string(source_dir())}})
      for (size_t at; (at = text.find(word)) != text.npos;) text.replace(at, word.size(), path);
    return text;
  };
  put(dir / "x.toml", placed(std::string(GetParam().training) + inert));
  std::vector<std::string> command{"train", "--config", (dir / "x.toml").string(), "--device", "cpu"};
  if (*GetParam().datasets != 0) {
    put(dir / "y.toml", placed(GetParam().datasets));
    command.insert(command.end(), {"--dataset_config", (dir / "y.toml").string()});
  }
  if (GetParam().name == std::string("lumina2"))
    command.insert(command.end(), {"--tokenizer", std::string(source_dir()) + "/tests/data/gemma_small"});
  std::vector<std::string> dry = command;
  dry.emplace_back("--dry-run");
  EXPECT_THAT(expect_trained(run_host(dry)).output, Not(HasSubstr("warning")));
  EXPECT_THAT(expect_trained(run_host(command)).output, Not(HasSubstr("warning")));
  EXPECT_GT(tensors_of(dir / "out" / "mine" / "mine.safetensors").size(), 0u);
  if (GetParam().name == std::string("folders")) {
    EXPECT_THAT(Safetensors(dir / "out" / "mine" / "mine.safetensors").metadata().at("ss_tag_frequency"),
                HasSubstr("{\"1_sks dog\":"));
  }
  const std::string rows = get(dir / "out" / "mine" / "metrics.csv");
  EXPECT_GE(std::ranges::count(rows, '\n'), 3) << rows;
}

INSTANTIATE_TEST_SUITE_P(Files, KohyaJobs, testing::Values(xl, flow, folders, sd, anima, lumina2, hunyuan_image),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lh::test::kohya_jobs_test
