// Which flags set which keys of the configuration, for each kind of command.
#include "cli/arguments.h"

namespace lh {
namespace {

constexpr ConfigFlag model_flags_rows[] = {
    {"--plugin", "plugin", ""},
    {"--device", "device", ""},
    {"--dtype", "train.dtype", ""},
    {"--model-dtype", "model.dtype",
     "Type in which the base weights are kept: float8_e4m3 or int8 for half the memory of bf16, nf4 for a quarter."},
    {"--products", "model.products",
     "Numbers in which layers with LoRA multiply: float8 or int8, with a --model-dtype of 8 bits, for speed."},
    {"--budget", "memory.budget", "Device memory that may be taken: 12GiB, or a number of GiB."},
    {"--stream", "memory.stream", ""},
    {"--host-memory", "memory.host", "Host memory for what does not fit on the device: 32GiB, or a number of GiB."},
    {"--shard-base", "memory.shard_base",
     "Each of several processes keeps a part of the frozen weights: true or false."},
};
constexpr ConfigFlag train_flags_rows[] = {
    {"--adapter", "network.type", "Adapter, by the id its plugin gives it: lora, dora, loha, lokr, full."},
    {"--rank", "network.linear", "Rank of the adapters."},
    {"--alpha", "network.linear_alpha", "Adapters are scaled by alpha / rank; the rank unless given."},
    {"--train-text-encoder", "train.train_text_encoder", ""},
    {"--steps", "train.steps", ""},
    {"--lr", "train.lr", ""},
    {"--lr-scheduler", "train.lr_scheduler", ""},
    {"--optimizer", "train.optimizer", ""},
    {"--recompute", "memory.recompute", "Share of what blocks keep for their backward passes that is made again: 35%."},
    {"--offload", "memory.offload", "Share of it that waits in host memory: 35%."},
    {"--optimizer-states", "memory.optimizer_states", "Where the optimizer's states are: auto, device or host."},
    {"--batch-size", "train.batch_size", ""},
    {"--gradient-accumulation", "train.gradient_accumulation", ""},
    {"--seed", "train.seed", ""},
    {"--deterministic", "train.deterministic", ""},
    {"--reduce-dtype", "train.reduce_dtype", "Type of gradients between processes: float32 or bfloat16."},
    {"--resolution", "datasets[].resolution", "Training size; 512,768 trains at both."},
    {"--num-frames", "datasets[].num_frames", "Frames of a clip of each video, for models of videos."},
    {"--caption-ext", "datasets[].caption_ext", ""},
    {"--trigger", "trigger_word", ""},
    {"--name", "name", ""},
    {"--out", "training_folder", "Folder of runs: everything is written to PATH/NAME."},
    {"--save-every", "save.save_every", ""},
    {"--save-dtype", "save.dtype", ""},
    {"--format", "save.format", ""},
    {"--sample-every", "sample.sample_every", ""},
    {"--sample-prompt", "sample.prompts", "Prompt of samples while training; may be repeated."},
};
constexpr ConfigFlag init_flags_rows[] = {
    {"--plugin", "plugin", ""},
    {"--device", "device", ""},
    {"--trigger", "trigger_word", ""},
    {"--name", "name", "Name of the run. [my_ and the name of the dataset's folder]"},
    {"--num-frames", "datasets[].num_frames",
     "Frames of a clip of each video, for models of videos. [33 where there are videos alone]"},
    {"--caption-ext", "datasets[].caption_ext", ""},
};
constexpr ConfigFlag data_flags_rows[] = {
    {"--resolution", "datasets[].resolution", "Training size; 512,768 trains at both."},
    {"--num-frames", "datasets[].num_frames", "Frames of a clip of each video, for models of videos."},
    {"--caption-ext", "datasets[].caption_ext", ""},
    {"--trigger", "trigger_word", ""},
    {"--batch-size", "train.batch_size", ""},
};
constexpr ConfigFlag sample_flags_rows[] = {
    {"--prompt", "sample.prompts", "Prompt; may be repeated, one image each."},
    {"--neg", "sample.neg", ""},
    {"--steps", "sample.sample_steps", ""},
    {"--guidance", "sample.guidance_scale", ""},
    {"--seed", "sample.seed", ""},
    {"--width", "sample.width", ""},
    {"--height", "sample.height", ""},
    {"--num-frames", "sample.num_frames", ""},
    {"--sampler", "sample.sampler", ""},
    {"--scheduler", "sample.scheduler", ""},
    {"--skip-layer-guidance", "sample.skip_layer_guidance_scale",
     "Scale of skip-layer guidance, for models that have it."},
};
constexpr ConfigFlag lora_file_flags_rows[] = {
    {"--save-dtype", "save.dtype", "Type of the tensors that are written."},
    {"--format", "save.format", "Names in the file that is written (docs/lora-files.md)."},
};

}  // namespace

std::span<const ConfigFlag> model_flags() { return model_flags_rows; }
std::span<const ConfigFlag> train_flags() { return train_flags_rows; }
std::span<const ConfigFlag> init_flags() { return init_flags_rows; }
std::span<const ConfigFlag> data_flags() { return data_flags_rows; }
std::span<const ConfigFlag> sample_flags() { return sample_flags_rows; }
std::span<const ConfigFlag> lora_file_flags() { return lora_file_flags_rows; }

}  // namespace lh
