#include "train/facts.h"

#include <fmt/ranges.h>

#include "config/load.h"
#include "core/hash.h"
#include "diffusion/training_guidance.h"
#include "io/file.h"
#include "train/fact_changes.h"
#include "train/picture_list.h"
#include "train/state_files.h"
#include "world/world.h"

namespace lh {
namespace {

constexpr size_t hex_digits = 16;  // of a fingerprint: enough that no two files agree by chance
// Raised with every change of a pass or a kernel after which some step has other bits.
constexpr int arithmetic_revision = 14;

// The CPU promises the same bits with any number of threads, but not with other kernels of its library; a GPU where
// train.deterministic promises them, on one kind of GPU with the same libraries. Empty: nothing is promised.
std::string device_fact(const Prepared& p) {
  const lk_device_info info = p.device.info();
  if (p.device.is_cpu()) return info.libraries;
  return p.config.train.deterministic ? std::string(info.name) + ", " + info.libraries : "";
}

std::string dataset_hash(const Dataset& dataset) {
  const bool batches_differ = dataset.batch_sizes().size() > 1;
  Sha256 hash;
  for (const Sample& s : dataset.samples) {
    for (const auto& [key, file] : s.images) hash.update(fmt::format("{}={};", key, file.content_hash));
    for (const std::string& text : s.texts) hash.update(text + "\n");
    if (s.mask)
      hash.update(
          fmt::format("{};{};{};{}\n", s.mask->file.content_hash, s.mask->alpha, s.mask->invert, s.mask->least));
    hash.update(fmt::format("{};{};{};{}x{};{};{};{};{}\n", s.image.content_hash, s.caption, s.rule.text(),
                            s.bucket.width, s.bucket.height, s.flip.x, s.repeats, s.is_reg, s.loss_weight));
    if (s.flip.y) hash.update("flip_y\n");
    if (batches_differ) hash.update(fmt::format("batch {}\n", s.batch_size));
    if (s.bucket.frames > 1 || s.clip.follows()) hash.update(clip_text(s.bucket, s.clip) + "\n");
    if (s.bucket.sound > 0)
      hash.update(fmt::format("sound {}{}\n", s.bucket.sound, s.normalize_sound ? " normalized" : ""));
    if (s.inpaint_masks > 0) hash.update(fmt::format("inpaint_masks {}\n", s.inpaint_masks));
    if (s.is_augmented())
      hash.update(
          fmt::format("{};{};{}{}\n", s.random_crop, s.color_aug, s.augment_variants, s.random_scale ? ";scale" : ""));
  }
  return hash.hex().substr(0, hex_digits);
}

// Identifies the set of trained tensors.
std::string targets_hash(const Adapters& adapters) {
  Sha256 hash;
  for (const AdapterTensor& tensor : adapters.tensors()) hash.update(tensor.name + "\n");
  for (const AdaptedModule& module : adapters.adapted())
    if (module.rule != nullptr) hash.update(fmt::format("{} {} {}\n", module.name, module.rank, module.alpha));
  return hash.hex().substr(0, hex_digits);
}

// Tokens that prompts may have where encoders read them in rows; states of older versions do not name them.
std::string rows_of_text(const Recipe& recipe) {
  int64_t tokens = 0;
  for (const auto& [encoder, spec] : recipe.tokenizers)
    if (spec.rows > 1) tokens = std::max(tokens, spec.rows * spec.row_tokens);
  return tokens > 0 ? fmt::format(" in rows of {} tokens", tokens) : "";
}

// How the base is kept. States of older versions do not name what text encoders are kept as.
std::string kept_as(const ModelConfig& model) {
  std::string text = model.dtype;
  if (model.text_encoder_dtype != "auto") text += ", text encoders " + model.text_encoder_dtype;
  if (model.products != "full") text += ", products " + model.products;
  return text;
}

// What is kept where masks hide it. States of older versions do not name it.
std::string hidden_text(const Prepared& p) {
  return p.keeps_masked()
             ? fmt::format(", what is hidden is kept, times {}", p.config.train.inverted_mask_prior_multiplier)
             : "";
}

// What is learnt, and how it is measured. States of older versions name the loss alone.
std::string loss_text(const Prepared& p) {
  const TrainSection& train = p.config.train;
  std::string text = p.slider.any() ? "slider, " + p.slider.text() : train.loss;
  if (train.do_differential_guidance)
    text += fmt::format(", towards {} times the way to the target", train.differential_guidance_scale);
  if (train.max_loss > 0) text += fmt::format(" up to {}", train.max_loss);
  if (train.audio_loss_multiplier != 1) text += fmt::format(", of sound times {}", train.audio_loss_multiplier);
  return text;
}

// How gradients travel between processes. States of older versions do not name it.
std::string travel_text(const TrainSection& train) {
  return train.reduce_dtype == "float32" ? "" : fmt::format(", gradients travel as {}", train.reduce_dtype);
}

// Where datasets have several the samples of each are part of `datasets`.
std::string batch_text(const Dataset& dataset) { return fmt::format("{}", fmt::join(dataset.batch_sizes(), " and ")); }

// Settings that decide what the next step computes; a run can only be continued with the same ones.
std::map<std::string, std::string> settings_facts(const Prepared& p) {
  const Config& c = p.config;
  const double guidance = training_guidance(c.train, p.model.recipe());
  return {{"model", p.model.checkpoint().fingerprint("denoiser").substr(0, hex_digits)},
          {"model.dtype", kept_as(c.model)},
          {"model.variant", p.model.recipe().variant},
          {"model.max_sequence_length", std::to_string(c.model.max_sequence_length) + rows_of_text(p.model.recipe())},
          {"network.type", c.network.type},
          {"network.network_kwargs options", p.adapter->options_text()},
          {"network.rank_dropout", fmt::format("{}", c.network.rank_dropout)},
          {"network.module_dropout", fmt::format("{}", c.network.module_dropout)},
          {"network.scale_weight_norms", fmt::format("{}", c.network.scale_weight_norms.value_or(0))},
          {"network.linear", std::to_string(c.network.linear)},
          {"network.linear_alpha",
           fmt::format("{}", c.network.linear_alpha.value_or(static_cast<double>(c.network.linear)))},
          {"network.conv", std::to_string(c.network.conv)},
          {"network.conv_alpha", fmt::format("{}", c.network.conv_alpha.value_or(static_cast<double>(c.network.conv)))},
          {"network.dropout", fmt::format("{}", c.network.dropout)},
          {"network.pretrained_lora_path", p.warm_start ? p.warm_start->fingerprint().substr(0, hex_digits) : "none"},
          {"network.network_kwargs", targets_hash(*p.plan->adapters)},
          {"datasets", dataset_hash(p.dataset)},
          {pictures_fact, picture_list(p.dataset)},
          {"train.batch_size", batch_text(p.dataset)},
          {accumulation_fact, std::to_string(c.train.gradient_accumulation)},
          {"train.seed", std::to_string(c.train.seed)},
          {"train.dtype", std::string(dtype_name(p.compute)) + travel_text(c.train)},
          {"objective", p.objective.text()},
          {"train.noise_offset", fmt::format("{}", c.train.noise_offset)},
          {"train.multires_noise_iterations",
           fmt::format("{} {}", c.train.multires_noise_iterations,
                       c.train.multires_noise_iterations > 0 ? c.train.multires_noise_discount : 0)},
          {"train.ip_noise_gamma",
           fmt::format("{}{}", c.train.ip_noise_gamma, c.train.ip_noise_gamma_random_strength ? " drawn" : "")},
          {"train.reg_weight", fmt::format("{}", c.train.reg_weight)},
          {"train.mask_normalization", c.train.mask_normalization + hidden_text(p)},
          {"what is kept as without adapters (train.diff_output_preservation, train.blank_prompt_preservation)",
           p.preserved.text()},
          {"train.cfg_scale", guidance < 0 ? "none (train.bypass_guidance_embedding)" : fmt::format("{}", guidance)},
          {"train.max_grad_norm", fmt::format("{}", c.train.max_grad_norm)},
          {"train.loss", loss_text(p)}};
}

std::string sha256_of_file(const std::filesystem::path& path) {
  const InputFile file(path);
  std::vector<std::byte> bytes(static_cast<size_t>(file.size()));
  file.read(0, bytes);
  return sha256_hex(bytes);
}

std::map<std::string, std::string> component_facts(Prepared& p) {
  std::map<std::string, std::string> facts;
  const Checkpoint& checkpoint = p.model.checkpoint();
  for (const ComponentSpec& component : p.model.spec().components)
    if (component.name != "denoiser" && checkpoint.has(component.name))
      facts[fmt::format("{} (model.{})", component.name, component.config_key)] =
          checkpoint.fingerprint(component.name).substr(0, hex_digits);
  for (const auto& [encoder, fingerprint] : p.text.tokens().fingerprints())
    facts["tokenizer of " + encoder] = sha256_hex(fingerprint).substr(0, hex_digits);
  facts["plugin " + p.model.id()] = p.model.plugin_version();
  facts["plugin of network.type " + p.adapter->id()] = p.adapter->plugin_version();
  if (const std::string device = device_fact(p); !device.empty()) {
    facts["device"] = device;
    facts[arithmetic_fact] = fmt::format("revision {}", arithmetic_revision);
  }
  return facts;
}

}  // namespace

std::map<std::string, std::string> facts_of(Prepared& p) {
  std::map<std::string, std::string> facts = settings_facts(p);
  facts.merge(component_facts(p));
  return facts;
}

std::map<std::string, std::string> common_facts(Prepared& p, const Config& asked) {
  std::map<std::string, std::string> facts = facts_of(p);
  facts.erase(pictures_fact);  // `datasets` is enough to tell that they differ
  facts["lora-host"] = LORA_HOST_VERSION;
  facts["MPI"] = world_library_text();
  if (p.device.is_cpu() || p.config.train.deterministic) facts["libraries"] = p.device.info().libraries;
  for (const auto& plugin : p.registry.plugins())
    facts["plugin " + plugin->path().filename().string()] = sha256_of_file(plugin->path()).substr(0, hex_digits);
  for (const auto& [key, value] : settings_in(to_yaml(asked))) facts["`" + key + "`"] = value;
  return facts;
}

}  // namespace lh
