// The typed configuration of a run. Keys and defaults are those that ai-toolkit users know; docs/config.md lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/yaml.h"

namespace lh {

// The value of a key that a plugin may have, and where it stands: in a file, or after a flag (line 0).
struct GivenValue {
  std::string text = {};
  std::string source = {};
  int line = 0, column = 0;
  std::string place() const;  // "file:line:column: ", or the flag; empty where there is neither
  bool operator==(const GivenValue&) const = default;
};

// Images beside those that are trained or made, by key of the model's recipe: files or folders.
using ImagePaths = std::map<std::string, std::vector<GivenValue>>;

// An option of a plugin's part (options.h of the SDK) as the user wrote it; what is wrong with it is known when the
// plugin is.
struct GivenOption {
  yaml::Node value;
  yaml::Place key;          // where its name stands
  std::string source = {};  // the file; empty where there is none
};
using GivenOptions = std::map<std::string, GivenOption>;

// Device memory, and what is kept elsewhere where it does not do (docs/memory.md).
struct MemoryConfig {
  std::string budget;              // "12GiB"; empty = what the device has
  std::string stream = "auto";     // blocks whose weights stay on the host: auto, at least so many ("12", "50%"), "0"
  std::string recompute = "auto";  // of what may be made again: auto, at least so much ("35%"), "0"
  std::string offload = "auto";    // of what may wait in host memory: auto, at least so much ("35%"), "0"
  std::string optimizer_states = "auto";  // where the optimizer's states are: auto, device, host
  std::string host;                       // "32GiB" of host memory for all of it; empty = what is free, less a margin
  bool shard_base = false;                // each of several processes keeps a part of the frozen weights
};

struct ModelConfig {
  std::filesystem::path name_or_path;       // single file or diffusers directory
  std::map<std::string, GivenValue> given;  // files and settings of the plugin: "vae_path" (model_keys.h)
  std::string dtype = "auto";               // storage of base weights: auto, bf16, fp16, fp32, float8_e4m3, int8, nf4
  int64_t max_sequence_length = 0;          // tokens of the long text encoder; 0 = the model's own
  int64_t max_token_length = 0;             // of text that encoders read in rows; 0 = the model's own
  int64_t vae_tile = 0;                     // pixels; 0 = as large as fits
  // LoRA files that are part of the model: always, as FILE[:STRENGTH], only while training, only in samples.
  std::vector<std::string> lora_path;
  std::filesystem::path assistant_lora_path, inference_lora_path;
  std::string text_encoder_dtype = "auto";  // as dtype, of the text encoders' linear layers
  std::string products = "full";            // with those weights: full, float8, int8
  bool with_sound = false;                  // some dataset is trained with its sound; no key of its own
};

struct NetworkConfig {
  std::string type = "lora";           // id of an adapter
  GivenOptions network_kwargs;         // its options
  int64_t linear = 16;                 // rank
  std::optional<double> linear_alpha;  // default: rank
  int64_t conv = 0;                    // rank on convolutions larger than 1x1; 0 = convolution blocks are left alone
  std::optional<double> conv_alpha;    // default: conv
  std::map<std::string, double> module_ranks, module_alphas;  // by pattern of whole module names
  double dropout = 0, rank_dropout = 0, module_dropout = 0;
  std::optional<double> scale_weight_norms;    // none = not
  std::vector<std::string> target_modules;     // patterns; empty = the model's own
  std::filesystem::path pretrained_lora_path;  // LoRA to start from; empty = a new one
  std::vector<std::string> only_if_contains, ignore_if_contains;
};

struct DatasetConfig {
  std::filesystem::path folder_path;
  std::string trigger_word;  // empty = the run's
  ImagePaths images;         // one folder each
  std::string caption_ext = "txt";
  std::string caption_prefix, caption_suffix;  // around every caption, with a space
  std::string default_caption;                 // for images without a caption file
  std::vector<std::string> replacements;       // "from|to", in every caption
  std::vector<std::string> random_triggers;    // words of which some are drawn for each use
  int64_t random_triggers_max = 1;             // how many: this one, or from 0 to as many where there may be several
  std::string missing_captions = "error";      // without either: error, empty
  std::filesystem::path metadata_file;         // captions of all pictures, in place of files beside them
  std::string caption_lines = "whole";         // of a caption file: whole, first, any
  bool enable_wildcard = false;                // {a|b}
  std::string shuffle_tokens = "false";        // false, true (behind the kept ones), all
  int64_t keep_tokens = 0;                     // tags in front that stay
  std::string keep_tokens_separator, caption_separator = ",", secondary_separator;
  double token_dropout_rate = 0;
  int64_t token_warmup_min = 1;
  double token_warmup_step = 0;  // below 1: of the run
  int64_t caption_variants = 0;  // of each picture; 0 = drawn anew each time
  std::vector<int64_t> resolution{512};
  std::vector<int64_t> batch_size;  // of each resolution, or one of all; empty = train.batch_size
  int64_t batch_size_at(size_t of_resolution, int64_t otherwise) const {
    return batch_size.empty() ? otherwise : batch_size[batch_size.size() == 1 ? 0 : of_resolution];
  }
  std::string problem_of_batch_size() const;  // empty: there is none
  int64_t num_frames = 1;                     // of a clip of each video; 1 = pictures
  bool do_i2v = false;                        // clips go on from their first frames, with models that can do without
  bool shrink_video_to_frames = true;         // spread over the whole video
  bool do_audio = false;                      // with their sound, of models that make some
  bool audio_normalize = false;
  double fps = 24;  // otherwise
  // In place of both, of the frames as they follow each other, or of those that are left at `fps` of source_fps.
  std::string frame_extraction;                // empty, head, chunk, slide, uniform, full
  int64_t frame_stride = 1, frame_sample = 1;  // of slide; of uniform
  double source_fps = 0;                       // 0 = all frames
  double caption_dropout_rate = 0;
  int64_t caption_dropout_every_n_epochs = 0;
  int64_t num_repeats = 1;
  bool recursive = false;           // pictures in sub-folders, too
  bool class_folders = false;       // sub-folders are datasets, named "repeats_caption"
  bool is_reg = false;              // pictures of what is to stay as it is
  double loss_multiplier = 1;       // of each of its samples
  std::filesystem::path mask_path;  // where white, the picture counts
  bool alpha_mask = false, invert_mask = false;
  double mask_min_value = 0;
  bool random_crop = false, random_scale = false, color_aug = false;
  int64_t augment_variants = 8;  // of each picture, where it has random crops, scales or colours
  int64_t inpaint_masks = 16;    // of each picture, where they are drawn
  bool flip_x = false, flip_y = false;
  bool cache_latents_to_disk = true;
  bool buckets = true;
  bool strict = false;    // refuse corrupt images instead of skipping them
  bool captioned = true;  // false: captions are not looked at, as a slider has its own prompts; no key of its own
};

// Average of the trained weights (run/ema.h).
struct EmaConfig {
  bool use_ema = false;
  double ema_decay = 0.999;
  std::string warmup = "none";                        // none, num_updates, diffusers, power
  std::optional<double> min_decay, inv_gamma, power;  // empty = 0, 1, 2/3
  int64_t update_after_step = 0;
};

// A part of a run with settings of its own (run_settings.h).
struct Phase {
  int64_t until = 0;                                // steps behind it when it ends; 0 = the end of the run
  yaml::Node settings = {.kind = yaml::Kind::map};  // lr, optimizer and so on
  yaml::Place place = {};
  std::string source = {};  // the file; empty where there is none
};

struct TrainSection {
  int64_t batch_size = 1;
  int64_t steps = 1000;
  int64_t max_train_epochs = 0;  // in place of steps; 0 = steps
  int64_t gradient_accumulation = 1;
  std::optional<double> lr;  // empty = what is usual for the optimizer (run/usual_rate.h)
  bool train_text_encoder = false;
  std::vector<double> text_encoder_lr;              // one, or one for each; empty = lr
  double loraplus_lr_ratio = 1;                     // of lora_up to lora_down
  std::map<std::string, double> module_lr_ratio;    // by pattern of the module's name
  std::map<std::string, double> role_weight_decay;  // down, up, weight; others: the optimizer's own
  std::string lr_scheduler = "constant";
  std::map<std::string, double> lr_scheduler_params;  // warmup_steps, num_cycles, power, lr_end
  std::string optimizer = "adamw";
  GivenOptions optimizer_params;
  std::vector<Phase> phases;  // in order; empty = one, with the settings above
  EmaConfig ema_config;
  double max_grad_norm = 1.0;   // 0 = no clipping
  std::string noise_scheduler;  // flowmatch, ddpm: what the model has to be; empty = whatever it is
  std::string timestep_type;    // empty = the model's own
  std::optional<double> timestep_shift, sigmoid_scale, logit_mean, logit_std, mode_scale;  // empty = the law's own
  int64_t min_denoising_steps = 0, max_denoising_steps = 999;  // which of 1000 noise levels, from the noisiest
  std::vector<double> noise_range;                             // the least and the largest level; empty = 0 and 1
  std::string noise_range_fit = "cut";                         // how a law is brought into it: cut, scale
  std::string weighting_scheme;                                // empty = the model's own
  std::optional<double> min_snr_gamma;                         // none or 0 = off
  bool debiased_estimation_loss = false;
  double noise_offset = 0;
  int64_t multires_noise_iterations = 0;
  double multires_noise_discount = 0.3;
  double ip_noise_gamma = 0;
  bool ip_noise_gamma_random_strength = false;
  // Which noise levels are favoured: balanced, content, style; of regularization samples the second.
  std::string content_or_style = "balanced", content_or_style_reg = "balanced";
  double reg_weight = 1;                     // of the loss of datasets with is_reg
  std::string mask_normalization = "batch";  // batch: its masks are 1 on average; none
  bool inverted_mask_prior = false;          // where masks hide it, the model stays as it was (compile/prior.h)
  double inverted_mask_prior_multiplier = 0.5;
  // A second loss, between what the model says with adapters and without them (data/preserved_prompts.h).
  bool diff_output_preservation = false, blank_prompt_preservation = false;
  std::string diff_output_preservation_class;
  double diff_output_preservation_multiplier = 1, blank_prompt_preservation_multiplier = 1;
  double text_cache_limit_gib = 50;       // of the encodings of captions that are drawn
  double validation_split = 0;            // share of the pictures
  std::optional<double> validation_seed;  // empty = seed
  int64_t validate_every_n_steps = 0, validate_every_n_epochs = 0;
  double cfg_scale = 1.0;  // guidance given to a guidance-distilled model
  bool bypass_guidance_embedding = false;
  int64_t seed = 42;
  std::string dtype = "bf16";                   // bf16, fp16, fp32
  std::string gradient_checkpointing = "auto";  // auto, true, false
  bool deterministic = true;                    // two runs give the same bits on one GPU
  std::string reduce_dtype = "float32";         // of gradients between processes: float32, bfloat16
  std::string loss = "mse";                     // mse, l1, huber, smooth_l1, pseudo_huber
  std::string huber_schedule;                   // how huber_c moves: snr, exponential, constant; empty = by the model
  double huber_c = 0.1, huber_scale = 1;
  double audio_loss_multiplier = 1;       // of the loss of a clip's sound
  double max_loss = 0;                    // of a batch: what is beyond teaches nothing; 0 = none
  bool do_differential_guidance = false;  // the loss is taken towards a place beyond the target
  double differential_guidance_scale = 3;
  // How many times as far from what the model says as the target.
  double target_distance() const { return do_differential_guidance ? differential_guidance_scale : 1; }

  // Where no optimizer was asked for its own, the usual one.
  double learning_rate() const { return lr.value_or(usual_lr); }
  static constexpr double usual_lr = 1e-4;
};

// A LoRA that moves a class from one prompt to another, in the place of what the images show (compile/slider.h).
struct SliderConfig {
  std::string positive_prompt, negative_prompt;  // both empty = none is trained
  std::string target_class;
  std::optional<std::string> anchor_class;  // empty text = the empty prompt
  double guidance_strength = 3, anchor_strength = 1;
  bool on() const { return !positive_prompt.empty() || !negative_prompt.empty(); }
};

// An image that is made while training: what it does not say is said for all of them.
struct SampleItem {
  SampleItem() = default;
  SampleItem(const char* text) : prompt(text) {}
  SampleItem(std::string text) : prompt(std::move(text)) {}
  std::string prompt;
  std::optional<std::string> neg;
  std::optional<int64_t> width, height, num_frames, seed, sample_steps;
  std::optional<double> fps, guidance_scale, guidance_rescale, renorm_cfg, cfg_trunc_ratio, network_multiplier;
  std::optional<bool> do_cfg_norm;
  std::map<std::string, GivenValue> images;  // by the model's key
  bool operator==(const SampleItem&) const = default;
};

struct SampleConfig {
  std::string sampler;    // empty = the model's own
  std::string scheduler;  // spacing of noise levels; empty = as the sampler's name says, or the model's own
  GivenOptions sampler_params, scheduler_params;
  int64_t sample_every = 0;           // 0 = never
  int64_t sample_every_n_epochs = 0;  // likewise
  int64_t sample_start_step = 0;
  std::vector<SampleItem> prompts;
  ImagePaths images;  // one file for all prompts, or one for each
  std::string neg;
  int64_t width = 512, height = 512;
  int64_t num_frames = 1;
  double fps = 16;
  int64_t seed = 42;
  bool walk_seed = false;                // prompt i uses seed + i
  int64_t sample_steps = 0;              // 0 = the model's own
  std::optional<double> guidance_scale;  // empty = the model's own
  double guidance_rescale = 0;
  bool do_cfg_norm = false;
  std::optional<double> renorm_cfg, cfg_trunc_ratio;  // empty = the model's own
  double network_multiplier = 1;                      // of the trained adapter
  bool batch_cfg = false;                             // both prompts of guidance in one batch
  std::vector<int64_t> skip_guidance_layers;          // empty = the model's own, as are the numbers
  std::optional<double> skip_layer_guidance_scale, skip_layer_guidance_start, skip_layer_guidance_stop;
  bool sample_at_start = false;
};

struct SaveConfig {
  int64_t save_every = 0;           // 0 = only at the end
  int64_t save_every_n_epochs = 0;  // likewise
  int64_t max_step_saves_to_keep = 4;
  std::string dtype = "float16";
  std::string format = "kohya";  // kohya, comfyui, diffusers
};

struct Config {
  std::string name = "lora";
  std::filesystem::path training_folder = "output";
  std::string trigger_word;
  std::string device = "cuda";
  std::string plugin;            // empty = found by probing the checkpoint
  int64_t memory_limit_mib = 0;  // memory.budget as it was said before there was that key; 0 = not
  ModelConfig model;
  NetworkConfig network;
  std::vector<DatasetConfig> datasets;
  TrainSection train;
  SliderConfig slider;
  SampleConfig sample;
  SaveConfig save;
  std::vector<std::string> notes;  // what is done in place of what the file says, and why; a line each
  MemoryConfig memory;

  std::filesystem::path output_dir() const { return training_folder / name; }
};

// Reads a YAML file; throws lh::Error(Code::config) whose text lists every problem, one a line, as
// "file:line:column: key: what is wrong (fix)". Relative paths stay relative to the working directory.
Config load_config(const std::filesystem::path& file);
// The effective configuration as YAML that load_config accepts; its notes as comments.
std::string to_yaml(const Config& config);

}  // namespace lh
