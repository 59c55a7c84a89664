// Keys of ai-toolkit files that are spelled differently here, mean nothing here, or are not supported.
#include <fmt/core.h>

#include "config/arch.h"
#include "config/model_keys.h"
#include "config/scalar.h"
#include "config/schema.h"

namespace lh::schema {
namespace {

constexpr Alias alias_table[] = {
    {"training_seed", "train.seed"},
    {"network.rank", "network.linear"},
    {"network.alpha", "network.linear_alpha"},
    {"network.algo", "network.type"},
    {"network.network_kwargs.algo", "network.type"},
    {"network.network_kwargs.conv_dim", "network.conv"},
    {"network.network_kwargs.conv_alpha", "network.conv_alpha"},
    {"network.network_kwargs.dropout", "network.dropout"},
    {"network.network_kwargs.rank_dropout", "network.rank_dropout"},
    {"network.network_kwargs.module_dropout", "network.module_dropout"},
    {"network.network_kwargs.scale_weight_norms", "network.scale_weight_norms"},
    {"network.network_kwargs.only_if_contains", "network.only_if_contains"},
    {"network.network_kwargs.ignore_if_contains", "network.ignore_if_contains"},
    {"datasets[].dataset_path", "datasets[].folder_path"},
    {"train.gradient_accumulation_steps", "train.gradient_accumulation"},
    {"train.unet_lr", "train.lr"},
    {"train.loss_type", "train.loss"},
    {"sample.samples", "sample.prompts"},
    {"save.save_format", "save.format"},
};

constexpr EntryAlias entry_alias_table[] = {
    {"datasets[].control_path", "datasets[].images", "control"},
    {"datasets[].control_path_1", "datasets[].images", "control", 1},
    {"datasets[].control_path_2", "datasets[].images", "control", 2},
    {"datasets[].control_path_3", "datasets[].images", "control", 3},
};

constexpr std::string_view planned = "memory is planned before the first step";
constexpr std::string_view compiled = "nothing is compiled at run time";
constexpr std::string_view only_with = "has a meaning only beside a key that is not supported";

constexpr Ignored ignored_table[] = {
    {"performance_log_every", "speed is always shown"},
    {"log_dir", "logs go to training_folder/name"},
    {"sqlite_db_path", "there is no user interface database"},
    {"logging.log_every", "every step is logged"},
    {"logging.verbose", "set LORA_LOG=debug instead"},
    {"logging.project_name", only_with},
    {"logging.run_name", only_with},
    {"logging.use_ui_logger", "there is no user interface database"},
    {"network.old_lokr_format", "files of lokr have the names of LyCORIS"},
    {"save.hf_repo_id", only_with},
    {"save.hf_private", only_with},
    {"datasets[].cache_latents", "latents are always computed once"},
    {"datasets[].cache_latents_num_workers", "the number of threads follows the machine"},
    {"datasets[].fast_image_size", "images are read whole once"},
    {"datasets[].trim_auto_frame_count_tail", only_with},
    {"datasets[].debug", "set LORA_LOG=debug instead"},
    {"datasets[].control_transparent_color", only_with},
    {"datasets[].full_size_control_images", "the model says how its further images are cut"},
    {"datasets[].type", "what is in the folder is looked at"},
    {"datasets[].num_workers", "the number of threads follows the machine"},
    {"datasets[].prefetch_factor", "the number of threads follows the machine"},
    {"datasets[].bucket_tolerance", "the model says which sizes it takes"},
    {"datasets[].cache_text_embeddings", "text embeddings are always computed once"},
    {"train.cache_text_embeddings", "text embeddings are always computed once"},
    {"train.unload_text_encoder", "text encoders are unloaded after use"},
    {"train.guidance_loss_target", only_with},
    {"train.guidance_loss_schedule", only_with},
    {"train.paramiter_swapping_factor", only_with},
    {"train.switch_boundary_every", "experts of a model are trained one after another, each for its steps"},
    {"train.max_loss_debug", only_with},
    {"train.merge_network_on_save_strength", only_with},
    {"train.attention_backend", "the fastest kernel is chosen"},
    {"train.sdp", "the fastest kernel is chosen"},
    {"train.xformers", "the fastest kernel is chosen"},
    {"model.quantize_kwargs", "only layers that LoRA goes on are kept in fewer bits"},
    {"model.low_vram", "memory is planned before the first step: blocks that do not fit are streamed (memory.stream)"},
    {"model.auto_memory", planned},
    {"model.layer_offloading_text_encoder_percent", planned},
    {"model.compile", compiled},
    {"model.block_compile", compiled},
    {"model.compile_mode", compiled},
    {"model.compile_fullgraph", compiled},
    {"model.compile_dynamic", compiled},
    {"model.cache_size_limit", compiled},
    {"model.vae_device", planned},
    {"model.te_device", planned},
    {"model.vae_dtype", "the VAE runs in bf16, or in fp32 where train.dtype is"},
    {"model.te_dtype", "text encoders run in bf16, or in fp32 where train.dtype is"},
    {"sample.format", "samples are written as PNG, clips as WebP, with sound as MP4"},
    {"sample.ext", "samples are written as PNG, clips as WebP, with sound as MP4"},
    {"sample.adapter_conditioning_scale", only_with},
    {"sample.refiner_start_at", only_with},
};

constexpr std::string_view captions = "prepare the captions beforehand";
constexpr std::string_view images = "prepare the images beforehand";
constexpr std::string_view several_images = "name each folder in images by the model's key: images: {control: folder}";

constexpr std::string_view no_adapter = "this program trains LoRA and its kin: say network: {type: lora, linear: 16}";
constexpr std::string_view a_lora = "remove it, and see docs/from-ai-toolkit.md for what there is";

constexpr Refused refused_table[] = {
    {"adapter", no_adapter},
    {"embedding", no_adapter},
    {"decorator", no_adapter},
    {"guidance", no_adapter},
    {"do_lorm", no_adapter},
    {"first_sample", "samples of step 0 are made as all others are: remove it"},
    {"torch_profiler", "use LORA_VERBOSE=time"},
    {"network.all_layers", "name the layers in network.target_modules"},
    {"network.layer_offloading", "remove it: memory is planned before the first step"},
    {"network.lorm", no_adapter},
    {"logging.use_wandb", "nothing is sent over the network; events are written to training_folder/name"},
    {"network.network_kwargs.full_if_contains", "use only_if_contains"},
    {"save.push_to_hub", "nothing is sent over the network; upload the file when the run is done"},
    {"datasets[].prior_reg", a_lora},
    {"datasets[].controls", "make control images beforehand, and name their folder in images"},
    {"datasets[].control_from_same_folder", several_images},
    {"datasets[].inpaint_path",
     "put each image's transparency into a folder of masks, white where it is to be painted: images: {mask: folder}"},
    {"datasets[].clip_image_path", no_adapter},
    {"datasets[].unconditional_path", a_lora},
    {"datasets[].auto_frame_count", "give num_frames", "false"},
    {"datasets[].audio_preserve_pitch", "sound that is played faster is higher here: cut the videos, or give fps",
     "false"},
    {"datasets[].use_short_captions", captions},
    {"datasets[].augments", images},
    {"datasets[].augmentations", images},
    {"datasets[].standardize_images", images},
    {"datasets[].network_weight", "use num_repeats", "1"},
    {"datasets[].scale", images, "1"},
    {"train.train_unet", "without it nothing would be trained; remove it", "true"},
    {"train.ema_config.use_feedback", "the average does not act on the weights; remove it"},
    {"train.ema_config.param_multiplier", "weights are not multiplied; remove it", "1"},
    {"train.ema_config.use_num_updates", "use warmup: num_updates"},
    {"train.ema_config.use_ema_warmup", "use warmup: power"},
    {"train.do_guidance_loss", "use cfg_scale"},
    {"train.do_paramiter_swapping", "a LoRA is small: remove it"},
    {"train.do_cfg", a_lora},
    {"train.do_random_cfg", a_lora},
    {"train.loss_target", "the model says what it is trained to say: remove it", "noise"},
    {"train.noise_multiplier", a_lora, "1"},
    {"train.random_noise_shift", "use noise_offset"},
    {"train.random_noise_multiplier", a_lora},
    {"train.dynamic_noise_offset", "use noise_offset"},
    {"train.img_multiplier", images, "1"},
    {"train.latent_multiplier", a_lora, "1"},
    {"train.noisy_latent_multiplier", a_lora, "1"},
    {"train.prompt_dropout_prob", "use datasets[].caption_dropout_rate"},
    {"train.standardize_images", images},
    {"train.standardize_latents", a_lora},
    {"train.single_item_batching", "use gradient_accumulation"},
    {"train.short_and_long_captions", captions},
    {"train.correct_pred_norm", a_lora},
    {"train.match_noise_norm", a_lora},
    {"train.do_fft_loss", a_lora},
    {"train.do_prior_divergence", a_lora},
    {"train.do_blank_stabilization", a_lora},
    {"train.do_signal_amplification", a_lora},
    {"train.do_batch_noise_correction", a_lora},
    {"train.do_signal_correction_noise", a_lora},
    {"train.force_consistent_noise", a_lora},
    {"train.blended_blur_noise", a_lora},
    {"train.optimal_noise_pairing_samples", a_lora, "1"},
    {"train.latent_feature_extractor_path", a_lora},
    {"train.diffusion_feature_extractor_path", a_lora},
    {"train.learnable_snr_gos", "use min_snr_gamma"},
    {"train.weight_jitter", a_lora},
    {"train.merge_network_on_save", "sample with --lora FILE; the checkpoint stays as it is"},
    {"train.start_step", "use --resume"},
    {"train.free_u", a_lora},
    {"train.adapter_assist_name_or_path", a_lora},
    {"train.negative_prompt", a_lora},
    {"train.train_turbo", a_lora},
    {"train.t0_loss_target", a_lora},
    {"train.snr_gamma", "use min_snr_gamma"},
    {"train.validation_config", "watch samples instead (sample.sample_every)"},
    {"model.accuracy_recovery_adapter", "remove it: float8_e4m3 with a factor for each row needs none"},
    {"network.split_multistage_loras", "each expert of a model has a LoRA file of its own: remove it", "true"},
    {"model.model_paths", "give each file by its own key: lora-host plugins --verbose lists them"},
    {"model.unet_path", "use name_or_path"},
    {"model.refiner_name_or_path", "train the refiner as a model of its own"},
    {"model.use_flux_cfg", "guidance follows sample.guidance_scale: remove it"},
    {"model.in_context", a_lora},
    {"model.only_if_contains", "use network.only_if_contains"},
    {"model.ignore_if_contains", "use network.ignore_if_contains"},
    {"model.te_name_or_path", "give each text encoder by its own key: lora-host plugins --verbose lists them"},
    {"model.attn_masking", "remove it"},
    {"model.split_model_over_gpus", "remove it"},
    {"sample.extra_values", no_adapter},
};

constexpr OptionAlias option_table[] = {
    {"network.lokr_factor", "lokr", "factor"},
    {"network.lokr_full_rank", "lokr", "full_matrix"},
    {"network.init_lora_weights", "", "init", "kaiming"},
    {"network.network_kwargs.init_lora_weights", "", "init", "kaiming"},
};

// In how many bits ai-toolkit's `qtype` keeps a weight; 0: not known.
int64_t bits_of(std::string_view type) {
  if (type == "nf4") return 4;
  for (const std::string_view front : {"uint", "int", "qint", "float", "qfloat", "convrot", "convrotint", "q_"}) {
    if (!type.starts_with(front)) continue;
    const std::string_view rest = type.substr(front.size());
    if (rest.size() == 1 && rest[0] >= '2' && rest[0] <= '8') return rest[0] - '0';
  }
  return 0;
}

void apply_qtype(Acting& on, const yaml::Node& value, const char* key, std::string& kept) {
  if (value.kind == yaml::Kind::null || value.text.empty() || kept != "float8_e4m3") return;
  const std::string type = value.text.substr(0, value.text.find('|'));
  const int64_t bits = bits_of(type);
  if (value.kind != yaml::Kind::scalar || bits == 0)
    return on.problems.push_back(
        "expected qfloat8, float8, int8, nf4, convrot8, uint2 to uint8, or one of them with |ADAPTER; set "
        "quantize to false to keep the weights as train.dtype");
  const bool adapter = type.size() != value.text.size(), of_floats = type.find("float") != type.npos;
  kept = bits <= 4 ? "nf4" : of_floats ? "float8_e4m3" : "int8";
  if (!adapter && (type == kept || (bits == 8 && (type.ends_with("int8") || of_floats)))) return;
  on.config.notes.push_back(
      fmt::format("{}: weights are kept as {}, with a factor for {}, instead of {}{}", key, kept,
                  bits <= 4 ? "each 64 neighbours" : "each row", value.text,
                  adapter ? ": the adapter, which makes up for the rounding of another type, is left out" : ""));
}

// A wish of ai-toolkit or kohya's scripts: at least so many blocks, as memory.stream has it.
void stream_at_least(Acting& on, std::string blocks) {
  on.config.memory.stream = std::move(blocks);
  on.config.notes.push_back(
      fmt::format("model.layer_offloading: the weights of {} of the blocks are streamed from host memory, or of more "
                  "where memory would not do (memory.stream)",
                  on.config.memory.stream));
}

void apply_offloading_share(Acting& on, const yaml::Node& value) {
  const auto share = yaml::number_of(value);
  if (!share || *share < 0 || *share > 1)
    return on.problems.push_back("expected a number, 0 to 1, found " + yaml::describe(value));
  if (on.config.memory.stream == "auto") return;  // layer_offloading is off
  on.config.notes.pop_back();
  on.config.memory.stream = "auto";
  if (*share > 0) stream_at_least(on, fmt::format("{:.0f}%", 100 * *share));
}

void apply_square_crop(Acting& on, const yaml::Node& value) {
  DatasetConfig& dataset = *on.dataset;
  if (!on.flag(value).value_or(false) || !dataset.buckets) return;  // ai-toolkit looks at it with buckets alone
  if (dataset.random_crop)
    on.config.notes.push_back(
        "datasets[].random_crop: true is not used: square_crop has the middle of each image, as in ai-toolkit");
  dataset.buckets = dataset.random_crop = dataset.random_scale = false;
}

const Switch switch_table[] = {
    {"network.transformer_only",
     [](Acting& on, const yaml::Node& value) {
       if (!on.flag(value).value_or(true) && on.config.network.target_modules.empty())
         on.config.network.target_modules = {".*"};
     },
     "false, without target_modules: target_modules: ['.*'], all linear layers."},
    {"datasets[].square_crop", apply_square_crop,
     "true, with buckets: buckets: false without random_crop and random_scale, the square in the middle."},
    {"train.force_first_sample",
     [](Acting& on, const yaml::Node& value) { on.config.sample.sample_at_start |= on.flag(value).value_or(false); },
     "true: sample before the first step."},
    {"train.skip_first_sample",
     [](Acting& on, const yaml::Node& value) { on.config.sample.sample_at_start = !on.flag(value).value_or(true); },
     "false: sample before the first step; true: do not."},
    {"train.disable_sampling",
     [](Acting& on, const yaml::Node& value) {
       if (!on.flag(value).value_or(false)) return;
       on.config.sample.sample_every = 0;
       on.config.sample.sample_at_start = false;
       on.config.sample.prompts.clear();
     },
     "true: no samples while training."},
    {"train.linear_timesteps",
     [](Acting& on, const yaml::Node& value) {
       if (!on.flag(value).value_or(false)) return;
       on.config.train.timestep_type = "linear";
       on.config.train.weighting_scheme = "bell";
     },
     "true: timestep_type: linear and weighting_scheme: bell."},
    {"train.linear_timesteps2",
     [](Acting& on, const yaml::Node& value) {
       if (!on.flag(value).value_or(false)) return;
       on.config.train.timestep_type = "linear";
       on.config.train.weighting_scheme = "half_bell";
     },
     "true: timestep_type: linear and weighting_scheme: half_bell."},
    {"model.arch",
     [](Acting& on, const yaml::Node& value) {
       if (!value.text.empty()) apply_arch(on, value.text, value);
     },
     "ai-toolkit's name for the kind of model: the plugin that has it is taken, with the settings that the name means. "
     "A name that no plugin has is refused."},
    {"model.model_kwargs", apply_model_kwargs,
     "train_NAME: false, of a model of several experts: NAME is not trained. Files that the model's plugin has "
     "keys for are given to them, and values that it knows mean settings of it. Anything else is refused: settings of "
     "the model have keys of their own."},
    {"model.extras_name_or_path",
     [](Acting& on, const yaml::Node& value) {
       if (value.kind == yaml::Kind::list || value.kind == yaml::Kind::map)
         return on.problems.push_back("expected a path, found " + yaml::describe(value));
       on.config.model.given[extras_key] = given_at(on, value.text, value.place);
     },
     "Checkpoint or diffusers directory that has the text encoders, tokenizers and image autoencoder which "
     "name_or_path does not have and no key of their own names."},
    {"model.unconditional_lora_path",
     [](Acting& on, const yaml::Node& value) {
       if (!yaml::asks_for_nothing(value))
         on.config.notes.emplace_back(
             "model.unconditional_lora_path: not used: in samples with guidance the model that is trained says both "
             "answers; what is trained is the same");
     },
     "Not used, and said so: in samples with guidance the model that is trained says both answers."},
    {"model.quantize",
     [](Acting& on, const yaml::Node& value) {
       if (on.flag(value).value_or(false)) on.config.model.dtype = "float8_e4m3";
     },
     "true: model.dtype: float8_e4m3."},
    {"model.layer_offloading",
     [](Acting& on, const yaml::Node& value) {
       if (on.flag(value).value_or(false)) stream_at_least(on, "100%");
     },
     "true: memory.stream: 100%."},
    {"model.layer_offloading_transformer_percent", apply_offloading_share,
     "With layer_offloading: the share of memory.stream."},
    {"model.qtype",
     [](Acting& on, const yaml::Node& value) { apply_qtype(on, value, "model.qtype", on.config.model.dtype); },
     "With quantize: what ai-toolkit keeps weights as. Types of up to 4 bits are model.dtype: nf4, other integers "
     "int8, other floats float8_e4m3."},
    {"model.quantize_te",
     [](Acting& on, const yaml::Node& value) {
       if (on.flag(value).value_or(false)) on.config.model.text_encoder_dtype = "float8_e4m3";
     },
     "true: model.text_encoder_dtype: float8_e4m3."},
    {"model.qtype_te",
     [](Acting& on, const yaml::Node& value) {
       apply_qtype(on, value, "model.qtype_te", on.config.model.text_encoder_dtype);
     },
     "With quantize_te: as qtype."},
    {"model.text_encoder_bits",
     [](Acting& on, const yaml::Node& value) {
       const auto bits = yaml::number_of(value);
       if (bits == 4 || bits == 8)
         on.config.model.text_encoder_dtype = bits == 4 ? "nf4" : "int8";
       else if (value.kind != yaml::Kind::null && bits != 16)
         on.problems.push_back("must be 4, 8 or 16, found " + yaml::describe(value));
     },
     "4: model.text_encoder_dtype: nf4; 8: int8."},
};

}  // namespace

std::optional<bool> Acting::flag(const yaml::Node& value) {
  const auto on = yaml::flag_of(value);
  if (!on) problems.push_back("expected true or false, found " + yaml::describe(value));
  return on;
}

std::span<const Alias> aliases() { return alias_table; }
std::span<const EntryAlias> entry_aliases() { return entry_alias_table; }
std::span<const Ignored> ignored() { return ignored_table; }
std::span<const Refused> refused() { return refused_table; }
std::span<const OptionAlias> option_aliases() { return option_table; }
std::span<const Switch> switches() { return switch_table; }

}  // namespace lh::schema
