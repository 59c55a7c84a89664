// Chooses the plugin of a checkpoint and opens the model: weights, recipe, roles.
#include "plugin/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/dtype.h"
#include "config/model_keys.h"
#include "core/error.h"
#include "core/log.h"
#include "ops/ops.h"
#include "passes/adapt.h"
#include "passes/layout.h"
#include "passes/products.h"
#include "plugin/published.h"
#include "plugin/recognise.h"

namespace lh {
namespace {

// The plugin to open the model with: the one that was asked for, or the surest.
Opinion choose(const Registry& registry, const ModelConfig& config, const std::string& name) {
  const std::string plugin = registry.model_id(name);
  std::vector<std::string> known;
  for (const ListedModel& model : registry.listed_models()) known.push_back(model.id);
  const std::string list = known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "));
  if (!plugin.empty() && std::ranges::find(known, plugin) == known.end())
    fail(Code::plugin, "no model plugin is called '{}'. Known: {}. Give its folder with --plugin-dir", plugin, list);
  // Without a denoiser (an encoder or VAE alone) there is nothing to ask about: the plugin was named.
  if (config.name_or_path.empty())
    for (const ListedModel& model : registry.listed_models())
      if (plugin == model.id) return {model, CheckpointSpec::parse(model.checkpoint, plugin), 100, {}};

  const std::filesystem::path& path = config.name_or_path;
  const std::vector<Opinion> opinions = ask_plugins(registry, path, plugin);
  if (plugin.empty()) {
    const auto broke = std::ranges::find_if(opinions, [](const Opinion& o) { return o.mistake && o.has_marker; });
    if (!opinions.empty() && opinions[0].confidence > 0) {
      if (broke != opinions.end()) log_warning("{}", broke->mistake->what());
      return opinions[0];
    }
    if (broke != opinions.end()) throw Error(*broke->mistake);
    std::string words;
    for (const Opinion& opinion : opinions)
      if (!opinion.words.empty()) words += fmt::format("\n  {}: {}", opinion.id(), opinion.words);
    fail(Code::data, "{}: no model plugin knows this checkpoint (asked: {}).{}{}", path.string(), list, words,
         what_it_is(registry, path));
  }
  const Opinion& asked = *std::ranges::find(opinions, plugin, &Opinion::id);
  if (asked.mistake) throw Error(*asked.mistake);
  if (asked.confidence > 0) return asked;
  std::string why = asked.words;
  if (why.empty())
    why = asked.has_marker
              ? "its marker tensor is there, but the plugin does not know these weights and does not say why (probe "
                "gave 0)"
              : fmt::format("its marker tensor '{}' is not there", asked.spec.component("denoiser")->marker);
  const Opinion& surest = opinions[0];
  const std::string instead =
      surest.confidence > 0
          ? fmt::format(
                "\n  plugin '{0}' takes it: say `plugin: {0}` (--plugin {0}), or leave the plugin and model.arch out",
                surest.id())
          : what_it_is(registry, path);
  fail(Code::data, "{}: this is not a checkpoint of plugin '{}': {}{}", path.string(), plugin, why, instead);
}

// How many rows a mask i32 [B, L] keeps: i32 [B].
Value lengths_of(Graph& graph, Value mask) {
  const Value rows = graph.add(sum_op, {mask}, {{"axes", std::vector<int64_t>{1}}}, 0)[0];
  return graph.add(reshape_op, {rows}, {{"shape", std::vector<int64_t>{graph.desc(mask).shape[0]}}}, 0)[0];
}

}  // namespace

Model::Model(const Registry& registry, const ModelConfig& given, const std::string& plugin,
             const std::set<std::string>& images) {
  ModelConfig config = given;
  if (config.name_or_path.empty() && (plugin.empty() || config.given.empty()))
    fail(Code::config, "model.name_or_path is missing");
  require_model_path(registry, config.name_or_path);
  dtype_ = config.dtype;
  text_encoder_dtype_ = config.text_encoder_dtype;
  products_ = products_named(config.products);
  Opinion chosen = choose(registry, config, plugin);
  id_ = chosen.id();
  spec_ = std::move(chosen.spec);
  if (const Expert* expert = spec_.experts.said(config); expert != nullptr && !config.name_or_path.empty())
    config = spec_.experts.alone(*expert, config);
  const Offered<lh_model> offered = chosen.model.load();
  plugin_file_ = offered.host->path;
  plugin_version_ = offered.host->version;
  ModelValues values = read_given(config, id_, registry.model_keys());
  files_ = std::move(values.files);
  if (!config.name_or_path.empty()) files_["name_or_path"] = config.name_or_path;
  std::map<std::string, std::filesystem::path> paths;  // others are files of tokenizers
  if (const auto extras = files_.find(extras_key); extras != files_.end()) paths.insert(*extras);
  for (const ComponentSpec& component : spec_.components)
    if (const auto file = files_.find(component.config_key); file != files_.end()) paths.insert(*file);
  checkpoint_ = std::make_unique<Checkpoint>(spec_, paths);
  try {
    plugin_ =
        std::make_unique<PluginModel>(offered, checkpoint_->weights(), &checkpoint_->documents(), values.settings);
  } catch (const Error& e) {
    if (e.code() != Code::data || config.name_or_path.empty()) throw;
    fail(Code::data, "{}: {}", config.name_or_path.string(), e.what());
  }
  recipe_ = Recipe::parse(plugin_->recipe(), id_);
  if (const ComponentSpec* vae = spec_.component("vae");
      vae != nullptr && recipe_.latents.pixels && config.given.contains(vae->config_key))
    fail(Code::config, "model.{}: model family '{}', {}, works on pixels and has no VAE. Leave it out", vae->config_key,
         recipe_.family, recipe_.variant);
  recipe_.keep_images(images);
  settle_tokenizers(config);
  lora_targets_ = LoraTargets(recipe_.lora_targets);
}

// How many rows a long text has. Files of other programs have the key whatever the model.
void Model::settle_rows(int64_t tokens) {
  bool used = false;
  for (auto& [encoder, spec] : recipe_.tokenizers) {
    if (spec.row_tokens == 0) continue;
    if (tokens % spec.row_tokens != 0 || tokens > spec.row_tokens * spec.max_rows)
      fail(Code::config,
           "model.max_token_length: '{}' reads text in up to {} rows of {} tokens: use {} to {}, found {}", id_,
           spec.max_rows, spec.row_tokens, spec.row_tokens, spec.row_tokens * spec.max_rows, tokens);
    spec.rows = tokens / spec.row_tokens;
    used = true;
  }
  if (!used) log_info("model.max_token_length: no text encoder of '{}' reads text in rows: it is not used", id_);
}

void Model::settle_tokenizers(const ModelConfig& config) {
  for (const auto& [encoder, spec] : recipe_.tokenizers) {
    const std::string& key = spec.files.config;
    if (!key.empty() && std::ranges::find(spec_.keys, key, &ModelKey::name) == spec_.keys.end())
      fail(Code::plugin,
           "plugin {}: recipe: tokenizers.{}.files.config: users cannot set `{}`: name it under `files` of the "
           "checkpoint YAML, with its help",
           id_, encoder, key);
  }
  if (const int64_t length = config.max_sequence_length; length > 0) {
    int64_t limit = 0;
    for (auto& [encoder, spec] : recipe_.tokenizers) {
      limit = std::max(limit, spec.max_length);
      if (length <= spec.max_length) spec.length = length;
    }
    if (limit == 0) fail(Code::config, "model.max_sequence_length: no text encoder of '{}' takes another length", id_);
    if (length > limit)
      fail(Code::config, "model.max_sequence_length: '{}' takes at most {} tokens, found {}", id_, limit, length);
  }
  if (config.max_token_length > 0) settle_rows(config.max_token_length);
  const auto there = [&](const auto& item) { return checkpoint_->has(item.first); };
  if (std::ranges::none_of(recipe_.tokenizers, there)) return;  // no prompt will be encoded
  std::erase_if(recipe_.tokenizers, [&](const auto& item) {
    const bool left_out = item.second.optional && !there(item);
    if (left_out) log_info("no file for text encoder {}: going on without it", item.first);
    return left_out;
  });
}

TokenizerPlaces Model::tokenizer_places(const TokenizerSpec& spec) const {
  const auto path = [&](const std::string& key) {
    const auto found = files_.find(key);
    return found == files_.end() ? std::filesystem::path() : found->second;
  };
  const std::filesystem::path own = path("name_or_path"), extras = path(extras_key);
  const bool in_extras = !std::filesystem::is_directory(own / spec.files.folder) && !extras.empty();
  return {.user = path(spec.files.config), .checkpoint = in_extras ? extras : own, .plugin = plugin_file_};
}

bool Model::has_role(const std::string& role) const {
  return std::ranges::find(plugin_->roles(), role) != plugin_->roles().end();
}

bool Model::is_adapted(const std::string& weight) const { return lora_targets_.contain(module_of(weight)); }

std::optional<WeightForm> Model::weight_form(const std::string& weight) const {
  const bool of_encoder = recipe_.encoders().contains(weight.substr(0, weight.find(':')));
  const std::string& dtype = of_encoder ? text_encoder_dtype_ : dtype_;
  const std::optional<DType> fewer = quantised_dtype(dtype);
  if (!fewer && dtype != "auto") return WeightForm{compute_dtype(dtype)};
  const bool rounded = fewer && (of_encoder || is_adapted(weight));
  // Eight bits stay what they are: to round them to eight others would only lose.
  if (const auto stored = checkpoint_->stored_fp8(weight); stored && !(rounded && *fewer == DType::nf4)) return stored;
  if (!rounded) return std::nullopt;
  return WeightForm::of(*fewer, checkpoint_->weights().at(weight).shape);
}

Graph Model::build(const std::string& role, const Sizes& sizes, DType compute, const SizeLists& lists) const {
  return build_chain({role}, sizes, compute, lists);
}

Graph Model::build_chain(const std::vector<std::string>& roles, const Sizes& sizes, DType compute,
                         const SizeLists& lists) const {
  Graph graph(compute);
  Sizes all = sizes;
  for (const auto& [name, spec] : recipe_.inputs)
    if (spec.optional) all[name] = 1;  // how the plugin sees that it is given
  for (const std::string& role : roles) {
    if (!has_role(role)) fail(Code::plugin, "plugin '{}' has no role '{}'", id_, role);
    const Given given = bound_inputs(graph, std::exchange(graph.outputs, {}));
    plugin_->build(graph, role, all, lists, given);
    if (graph.outputs.empty()) fail(Code::plugin, "plugin '{}', role {}: the graph has no output", id_, role);
  }
  settle_layouts(graph);
  return graph;
}

// What the denoiser's inputs are bound to, of what the conditioner gave in the same graph.
Model::Given Model::bound_inputs(Graph& graph, const Given& outputs) const {
  Given given;
  const auto give = [&](const std::string& input, const std::string& output) {
    if (const auto found = outputs.find(output); found != outputs.end()) given.emplace(input, found->second);
  };
  for (const auto& [name, spec] : recipe_.inputs) {
    if (spec.source == InputSpec::Source::conditioner) give(name, spec.of);
    if (spec.source == InputSpec::Source::mask) give(name, recipe_.inputs.at(spec.of).mask);
    if (spec.source != InputSpec::Source::lengths) continue;
    if (const auto mask = outputs.find(recipe_.inputs.at(spec.of).mask); mask != outputs.end())
      given.emplace(name, lengths_of(graph, mask->second));
  }
  return given;
}

}  // namespace lh
