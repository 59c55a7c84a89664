// Keys of ai-toolkit files that are spelled differently here, mean nothing here, or are not supported.
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
    {"datasets[].cache_latents", "datasets[].cache_latents_to_disk"},
    {"train.gradient_accumulation_steps", "train.gradient_accumulation"},
    {"train.unet_lr", "train.lr"},
    {"train.loss_type", "train.loss"},
    {"sample.samples", "sample.prompts"},
    {"save.save_format", "save.format"},
};

constexpr EntryAlias entry_alias_table[] = {
    {"datasets[].control_path", "datasets[].images", "control"},
};

constexpr std::string_view from_weights = "the kind of model is found by looking at the weights";
constexpr std::string_view planned = "memory is planned before the first step";
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
    {"network.transformer_only", "text encoders are adapted only with train.train_text_encoder"},
    {"save.hf_repo_id", only_with},
    {"save.hf_private", only_with},
    {"datasets[].keep_tokens", only_with},
    {"datasets[].num_workers", "the number of threads follows the machine"},
    {"datasets[].prefetch_factor", "the number of threads follows the machine"},
    {"datasets[].bucket_tolerance", "the model says which sizes it takes"},
    {"datasets[].cache_text_embeddings", "text embeddings are always computed once"},
    {"datasets[].invert_mask", only_with},
    {"datasets[].mask_min_value", only_with},
    {"train.noise_scheduler", "the model says what it was trained with"},
    {"train.cache_text_embeddings", "text embeddings are always computed once"},
    {"train.unload_text_encoder", "text encoders are unloaded after use"},
    {"train.diff_output_preservation_multiplier", only_with},
    {"train.diff_output_preservation_class", only_with},
    {"train.attention_backend", "the fastest kernel is chosen"},
    {"train.sdp", "the fastest kernel is chosen"},
    {"train.xformers", "the fastest kernel is chosen"},
    {"model.arch", from_weights},
    {"model.qtype", only_with},
    {"model.qtype_te", only_with},
    {"model.low_vram", planned},
    {"model.layer_offloading", planned},
    {"model.layer_offloading_transformer_percent", planned},
    {"model.layer_offloading_text_encoder_percent", planned},
    {"model.compile", "nothing is compiled at run time"},
};

constexpr std::string_view captions = "prepare the captions beforehand";
constexpr std::string_view images = "prepare the images beforehand";
constexpr std::string_view masks = "crop the images to what matters instead";

constexpr Refused refused_table[] = {
    {"logging.use_wandb", "nothing is sent over the network; events are written to training_folder/name"},
    {"network.network_kwargs.full_if_contains", "use only_if_contains"},
    {"save.push_to_hub", "nothing is sent over the network; upload the file when the run is done"},
    {"datasets[].shuffle_tokens", captions},
    {"datasets[].token_dropout_rate", "use caption_dropout_rate"},
    {"datasets[].replacements", captions},
    {"datasets[].is_reg", "put regularization images in a dataset of their own"},
    {"datasets[].network_weight", "use num_repeats", "1"},
    {"datasets[].loss_multiplier", "use num_repeats", "1"},
    {"datasets[].flip_y", images},
    {"datasets[].random_crop", images},
    {"datasets[].random_scale", images},
    {"datasets[].square_crop", "use buckets: false"},
    {"datasets[].scale", images, "1"},
    {"datasets[].mask_path", masks},
    {"datasets[].alpha_mask", masks},
    {"train.train_unet", "without it nothing would be trained; remove it", "true"},
    {"train.ema_config.use_feedback", "the average does not act on the weights; remove it"},
    {"train.ema_config.param_multiplier", "weights are not multiplied; remove it", "1"},
    {"train.ema_config.use_num_updates", "use warmup: num_updates"},
    {"train.ema_config.use_ema_warmup", "use warmup: power"},
    {"train.linear_timesteps", "use timestep_type: linear"},
    {"train.linear_timesteps2", "use timestep_type: linear"},
    {"train.content_or_style", "use timestep_type and timestep_shift", "balanced"},
    {"train.bypass_guidance_embedding", "use cfg_scale"},
    {"train.do_guidance_loss", "use cfg_scale"},
    {"train.snr_gamma", "use min_snr_gamma"},
    {"train.diff_output_preservation", "use a dataset of regularization images"},
    {"train.blank_prompt_preservation", "use caption_dropout_rate"},
    {"train.reg_weight", "use num_repeats", "1"},
    {"train.inverted_mask_prior", masks},
    {"train.validation_config", "watch samples instead (sample.sample_every)"},
    {"model.quantize", "set it to false; use model.dtype: float8_e4m3"},
    {"model.quantize_te", "set it to false; text encoders are unloaded after use"},
    {"model.assistant_lora_path", "merge the adapter into the checkpoint first"},
    {"model.lora_path", "merge the adapter into the checkpoint first"},
    {"model.inference_lora_path", "sample with --lora FILE when the run is done"},
    {"model.te_name_or_path", "give each text encoder by its own key: lora-host plugins --verbose lists them"},
    {"model.attn_masking", "remove it"},
    {"model.split_model_over_gpus", "remove it"},
    {"sample.sample_start_step", "use sample_every"},
    {"sample.network_multiplier", "sample with --lora FILE:STRENGTH when the run is done", "1"},
};

constexpr OptionAlias option_table[] = {
    {"network.lokr_factor", "lokr", "factor"},
    {"network.lokr_full_rank", "lokr", "full_matrix"},
    {"network.init_lora_weights", "", "init", "kaiming"},
    {"network.network_kwargs.init_lora_weights", "", "init", "kaiming"},
};

const Switch switch_table[] = {
    {"train.force_first_sample", [](Config& c, bool on) { c.sample.sample_at_start |= on; },
     "true: sample before the first step."},
    {"train.skip_first_sample", [](Config& c, bool on) { c.sample.sample_at_start = !on; },
     "false: sample before the first step; true: do not."},
    {"train.disable_sampling",
     [](Config& c, bool on) {
       if (!on) return;
       c.sample.sample_every = 0;
       c.sample.sample_at_start = false;
     },
     "true: no samples while training."},
};

}  // namespace

std::span<const Alias> aliases() { return alias_table; }
std::span<const EntryAlias> entry_aliases() { return entry_alias_table; }
std::span<const Ignored> ignored() { return ignored_table; }
std::span<const Refused> refused() { return refused_table; }
std::span<const OptionAlias> option_aliases() { return option_table; }
std::span<const Switch> switches() { return switch_table; }

}  // namespace lh::schema
