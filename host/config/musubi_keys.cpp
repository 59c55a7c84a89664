#include "config/musubi_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "config/nearest.h"

namespace lh::musubi {
namespace {

struct Same {
  std::string_view theirs, ours;
};
constexpr Same same[] = {
    {"dit", "model.name_or_path"},
    // of datasets
    {"image_directory", "datasets[].folder_path"},
    {"video_directory", "datasets[].folder_path"},
    {"image_jsonl_file", "datasets[].metadata_file"},
    {"video_jsonl_file", "datasets[].metadata_file"},
};

// Arguments of sd-scripts that mean the same: another name, no effect, or not supported.
constexpr std::string_view shared[] = {
    "vae", "output_dir", "output_name", "network_dim", "network_dropout", "network_weights", "scale_weight_norms",
    "learning_rate", "lr_scheduler", "max_train_steps", "max_train_epochs", "save_every_n_epochs", "save_every_n_steps",
    "save_precision", "sample_every_n_epochs", "sample_every_n_steps", "sample_at_first", "sample_prompts",
    "gradient_accumulation_steps", "gradient_checkpointing", "max_grad_norm", "seed", "weighting_scheme",
    "caption_extension", "num_repeats",
    // without effect
    "lr_decay_steps", "sdpa", "xformers", "split_attn", "vae_chunk_size", "max_data_loader_n_workers",
    "persistent_data_loader_workers", "dynamo_backend", "ddp_timeout", "ddp_gradient_as_bucket_view",
    "ddp_static_graph", "logging_dir", "log_prefix", "log_tracker_name", "log_tracker_config", "log_config",
    "wandb_run_name", "wandb_api_key", "huggingface_path_in_repo", "huggingface_repo_type",
    "huggingface_repo_visibility", "huggingface_token", "async_upload", "base_weights_multiplier", "no_metadata",
    "training_comment", "metadata_title", "metadata_author", "metadata_description", "metadata_license",
    "metadata_tags", "save_state", "save_state_on_train_end", "save_last_n_steps_state", "save_last_n_epochs_state",
    "config_file",
    // not supported
    "resume", "dim_from_weights", "log_with", "huggingface_repo_id", "save_state_to_huggingface",
    "resume_from_huggingface", "lr_scheduler_type", "lr_scheduler_min_lr_ratio", "debug_dataset"};

constexpr std::string_view inert[] = {
    "flash_attn", "sage_attn", "flash3", "compile", "compile_backend", "compile_mode", "compile_dynamic",
    "compile_fullgraph", "compile_cache_size_limit", "cuda_allow_tf32", "cuda_cudnn_benchmark", "dynamo_mode",
    "dynamo_fullgraph", "dynamo_dynamic", "gradient_checkpointing_cpu_offload", "use_pinned_memory_for_block_swap",
    "block_swap_h2d_only", "block_swap_ring_size", "img_in_txt_in_offloading", "disable_numpy_memmap",
    "guidance_scale",  // models are trained with 1
    "metadata_reso", "metadata_arch", "vae_dtype", "vae_cache_cpu", "vae_tiling", "vae_sample_size",
    "vae_enable_patch_conv", "vae_spatial_tile_sample_min_size",
    "clip",  // of image-to-video
    "force_v2_1_time_embedding", "offload_inactive_dit",
    "timestep_boundary",  // where there are two
    "num_layers",         // counted in the file
    "use_32bit_attention", "turbo_dit_cache", "unconditional_dit", "log_loss_stats", "validate_caption_structure",
    "warn_on_caption_issues",
    // of datasets
    "cache_directory", "fp_latent_window_size"};

constexpr std::string_view one_model = "samples are made by the model that is trained: remove it",
                           own_levels = "samples have the levels of the model's own schedule: remove it",
                           whole_images =
                               "control images are scaled and cut like their images: remove it, and prepare "
                               "them so beforehand";
constexpr kohya::Refused all_refused[] = {
    {"num_timestep_buckets", "1", "each noise level is drawn by itself: remove it"},
    {"show_timesteps", "", "--dry-run says how noise levels are drawn: remove it"},
    {"one_frame", "", "an image is trained as a video of one frame: remove it"},
    {"remove_first_image_from_target", "", "pictures in layers are not trained here"},
    {"turbo_dit", "", one_model},
    {"use_unconditional_dit_for_lora_sampling", "", one_model},
    {"sampler_preset", "V4_DEFAULT_20", own_levels},
    {"initial_sigma", "1.004", own_levels},
    {"dit_dtype", "bfloat16", "use mixed_precision, by which the model is run"},
    // of datasets
    {"multiple_target", "", "pictures in layers are not trained here", true},
    {"fp_1f_clean_indices", "", "an image is trained as a video of one frame: remove it", true},
    {"fp_1f_target_index", "", "an image is trained as a video of one frame: remove it", true},
    {"fp_1f_no_post", "", "an image is trained as a video of one frame: remove it", true},
    {"no_resize_control", "", whole_images, true},
    {"flux_kontext_no_resize_control", "", whole_images, true},
    {"qwen_image_edit_no_resize_control", "", whole_images, true},
};

// What more than a table reads (musubi.cpp, script_arguments.cpp).
constexpr std::string_view arguments_read[] = {"task",
                                               "text_encoder",
                                               "text_encoder1",
                                               "text_encoder2",
                                               "t5",
                                               "byt5",
                                               "model_version",
                                               "edit",
                                               "edit_plus",
                                               "dit_high_noise",
                                               "dataset_config",
                                               "plugin",
                                               "fp8_t5",
                                               "fp8_llm",
                                               "fp8_vl",
                                               "fp8_text_encoder",
                                               "fp8_base",
                                               "fp8_scaled",
                                               "blocks_to_swap",
                                               "mixed_precision",
                                               "network_module",
                                               "network_args",
                                               "network_alpha",
                                               "optimizer_type",
                                               "optimizer_args",
                                               "save_last_n_steps",
                                               "save_last_n_epochs",
                                               "lr_warmup_steps",
                                               "lr_scheduler_num_cycles",
                                               "lr_scheduler_power",
                                               "lr_scheduler_timescale",
                                               "lr_scheduler_args",
                                               "timestep_sampling",
                                               "discrete_flow_shift",
                                               "sigmoid_scale",
                                               "logit_mean",
                                               "logit_std",
                                               "mode_scale",
                                               "min_timestep",
                                               "max_timestep",
                                               "preserve_distribution_shape"};
constexpr std::string_view datasets_read[] = {
    "resolution",           "batch_size",         "enable_bucket",     "target_frames",
    "frame_extraction",     "frame_stride",       "frame_sample",      "max_frames",
    "source_fps",           "num_repeats",        "bucket_no_upscale", "control_directory",
    "cache_directory",      "control_resolution", "caption_extension", "qwen_image_edit_control_resolution",
    "fp_latent_window_size"};
constexpr std::string_view general[] = {"caption_extension", "batch_size",    "num_repeats",
                                        "resolution",        "enable_bucket", "bucket_no_upscale"};

template <typename Table>
bool has(const Table& table, std::string_view name) {
  return std::ranges::find(table, name) != std::end(table);
}

bool is_shared(std::string_view name) { return has(shared, name); }
bool of_datasets(std::string_view name) { return name.ends_with("_directory") || name.ends_with("_jsonl_file"); }

std::string unknown_key(const std::string& name, const std::vector<std::string_view>& known) {
  const std::string near = nearest_of(name, known);
  return fmt::format("unknown key{} docs/from-musubi.md lists those that are known",
                     near.empty() ? ";" : fmt::format(". Did you mean {}?", near));
}

}  // namespace

std::string_view ours(std::string_view name) {
  const auto* const row = std::ranges::find(same, name, &Same::theirs);
  if (row != std::end(same)) return row->ours;
  return is_shared(name) ? kohya::ours(name) : "";
}

bool has_no_effect(std::string_view name) {
  return has(inert, name) || (is_shared(name) && kohya::has_no_effect(name));
}

const kohya::Refused* refused(std::string_view name) {
  const auto* const row = std::ranges::find(all_refused, name, &kohya::Refused::key);
  if (row != std::end(all_refused)) return row;
  return is_shared(name) ? kohya::refused(name) : nullptr;
}

std::string unknown(const std::string& name) {
  std::vector<std::string_view> known(std::begin(arguments_read), std::end(arguments_read));
  known.insert(known.end(), std::begin(shared), std::end(shared));
  known.insert(known.end(), std::begin(inert), std::end(inert));
  for (const Same& row : same) known.push_back(row.theirs);
  for (const kohya::Refused& row : all_refused) known.push_back(row.key);
  std::erase_if(known, of_datasets);
  return unknown_key(name, known);
}

std::string unknown_of_datasets(const std::string& name) {
  std::vector<std::string_view> known(std::begin(datasets_read), std::end(datasets_read));
  for (const Same& row : same)
    if (of_datasets(row.theirs)) known.push_back(row.theirs);
  for (const kohya::Refused& row : all_refused)
    if (row.of_datasets) known.push_back(row.key);
  return unknown_key(name, known);
}

bool may_be_general(std::string_view name) { return has(general, name); }

bool is_by_size(std::string_view law) {
  constexpr std::string_view laws[] = {"flux_shift", "flux2_shift", "qwen_shift", "krea2_shift", "ideogram4_shift"};
  return has(laws, law);
}

}  // namespace lh::musubi
