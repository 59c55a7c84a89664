#include "plugin/model.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "config/dtype.h"
#include "core/error.h"
#include "graph/adapt.h"

namespace lh {
namespace {

struct Candidate {
  Offered<lh_model> offered;
  CheckpointSpec spec;
  int32_t confidence = 0;
};

// Asks a plugin how sure it is of a checkpoint, through its own key maps.
Candidate probe(const Offered<lh_model>& offered, const std::filesystem::path& path) {
  Candidate c{offered, CheckpointSpec::parse(offered.descriptor->checkpoint, offered.descriptor->id), 0};
  const std::map<std::string, Desc> weights = probe_weights(c.spec, path);
  if (weights.empty()) return c;
  offered.host->weights = &weights;
  c.confidence = offered.descriptor->probe(offered.host);
  offered.host->weights = nullptr;
  return c;
}

Candidate choose(const Registry& registry, const ModelConfig& config, const std::string& plugin) {
  // Without a denoiser (an encoder or VAE alone) there is nothing to probe: the plugin has to be named.
  const bool blind = config.name_or_path.empty() && !plugin.empty();
  const std::vector<Offered<lh_model>> models = registry.models();
  Candidate best;
  std::string known;
  for (const Offered<lh_model>& offered : models) {
    known += (known.empty() ? "" : ", ") + std::string(offered.descriptor->id);
    if (!plugin.empty() && plugin != offered.descriptor->id) continue;
    Candidate c = blind ? Candidate{offered, CheckpointSpec::parse(offered.descriptor->checkpoint, plugin), 100}
                        : probe(offered, config.name_or_path);
    if (best.offered.descriptor == nullptr || c.confidence > best.confidence) best = std::move(c);
  }
  if (best.offered.descriptor == nullptr)
    fail(Code::plugin, "no model plugin is called '{}'. Known: {}. Give its folder with --plugin-dir", plugin,
         known.empty() ? "none" : known);
  if (best.confidence <= 0) {
    if (plugin.empty())
      fail(Code::data,
           "{}: no model plugin knows this checkpoint (asked: {}). Is it a model file, and its plugin installed?",
           config.name_or_path.string(), known);
    fail(Code::data, "{}: this is not a checkpoint of plugin '{}': its marker tensor '{}' is not there",
         config.name_or_path.string(), plugin, best.spec.component("denoiser")->marker);
  }
  return best;
}

}  // namespace

Model::Model(const Registry& registry, const ModelConfig& config, const std::string& plugin) {
  if (config.name_or_path.empty() && (plugin.empty() || config.files.empty()))
    fail(Code::config, "model.name_or_path is missing");
  if (!config.name_or_path.empty() && !std::filesystem::exists(config.name_or_path))
    fail(Code::data, "model.name_or_path: {}: no such file or directory", config.name_or_path.string());
  dtype_ = config.dtype;
  Candidate chosen = choose(registry, config, plugin);
  offered_ = chosen.offered;
  id_ = offered_.descriptor->id;
  spec_ = std::move(chosen.spec);
  std::map<std::string, std::filesystem::path> paths = config.files;
  if (!config.name_or_path.empty()) paths["name_or_path"] = config.name_or_path;
  checkpoint_ = std::make_unique<Checkpoint>(spec_, paths);
  offered_.host->weights = &checkpoint_->weights();
  offered_.host->settings.clear();
  if (!config.variant.empty()) offered_.host->settings["variant"] = config.variant;
  if (offered_.descriptor->create(offered_.host, &self_) != LH_OK)
    fail(Code::data, "{}: {}", config.name_or_path.string(), offered_.host->failure);
  try {
    recipe_ = Recipe::parse(offered_.descriptor->recipe(self_), id_);
    settle_tokenizers(config);
    lora_targets_ = LoraTargets(recipe_.lora_targets);
  } catch (...) {
    offered_.descriptor->destroy(self_);
    throw;
  }
}

Model::~Model() {
  offered_.descriptor->destroy(self_);
  offered_.host->weights = nullptr;
}

void Model::settle_tokenizers(const ModelConfig& config) {
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
  const auto there = [&](const auto& item) { return checkpoint_->has(item.first); };
  if (std::ranges::none_of(recipe_.tokenizers, there)) return;  // no prompt will be encoded
  std::erase_if(recipe_.tokenizers, [&](const auto& item) {
    const bool left_out = item.second.optional && !there(item);
    if (left_out) spdlog::info("no file for text encoder {}: going on without it", item.first);
    return left_out;
  });
}

bool Model::has_role(const std::string& role) const {
  for (uint32_t i = 0;; ++i) {
    const char* name = offered_.descriptor->role(self_, i);
    if (name == nullptr) return false;
    if (role == name) return true;
  }
}

std::optional<WeightForm> Model::weight_form(const std::string& weight) const {
  const bool quantise = dtype_ == "float8_e4m3";
  if (!quantise && dtype_ != "auto") return WeightForm{compute_dtype(dtype_)};
  if (const auto stored = checkpoint_->stored_fp8(weight)) return stored;
  if (!quantise || !lora_targets_.contain(module_of(weight))) return std::nullopt;
  return WeightForm{DType::f8_e4m3, checkpoint_->weights().at(weight).shape[0]};
}

Graph Model::build(const std::string& role, const Sizes& sizes, DType compute) const {
  return build_chain({role}, sizes, compute);
}

Graph Model::build_chain(const std::vector<std::string>& roles, const Sizes& sizes, DType compute) const {
  offered_.host->weights = &checkpoint_->weights();  // several models of one plugin may be open
  Graph graph(compute);
  for (const std::string& role : roles) {
    const Given given = std::exchange(graph.outputs, {});
    add_role(graph, role, sizes, given);
    if (graph.outputs.empty()) fail(Code::plugin, "plugin '{}', role {}: the graph has no output", id_, role);
  }
  return graph;
}

void Model::add_role(Graph& graph, const std::string& role, const Sizes& sizes, const Given& given) const {
  if (!has_role(role)) fail(Code::plugin, "plugin '{}' has no role '{}'", id_, role);
  lh_graph building{.host = offered_.host, .graph = &graph, .given = given};
  std::vector<lh_attr> attrs;
  for (const auto& [name, size] : sizes) {
    lh_attr attr{.name = name.c_str(), .type = LH_ATTR_I64, .count = 1, .v = {}};
    attr.v.i = size;
    attrs.push_back(attr);
  }
  const lh_status status =
      offered_.descriptor->build(self_, &building, role.c_str(), attrs.data(), static_cast<uint32_t>(attrs.size()));
  if (!building.error.empty()) fail(Code::data, "plugin '{}', role {}: {}", id_, role, building.error);
  if (status != LH_OK) fail(Code::plugin, "plugin '{}', role {}: {}", id_, role, offered_.host->failure);
}

}  // namespace lh
