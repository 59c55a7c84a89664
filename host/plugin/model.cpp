#include "plugin/model.h"

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

Graph Model::build(const std::string& role, const Sizes& sizes, DType compute, const SizeLists& lists) const {
  if (!has_role(role)) fail(Code::plugin, "plugin '{}' has no role '{}'", id_, role);
  Graph graph(compute);
  lh_graph building{.host = offered_.host, .graph = &graph};
  std::vector<lh_attr> attrs;
  for (const auto& [name, size] : sizes) {
    lh_attr attr{.name = name.c_str(), .type = LH_ATTR_I64, .count = 1, .v = {}};
    attr.v.i = size;
    attrs.push_back(attr);
  }
  for (const auto& [name, list] : lists) {
    lh_attr attr{.name = name.c_str(), .type = LH_ATTR_I64_LIST, .count = static_cast<uint32_t>(list.size()), .v = {}};
    attr.v.is = list.data();
    attrs.push_back(attr);
  }
  const lh_status status =
      offered_.descriptor->build(self_, &building, role.c_str(), attrs.data(), static_cast<uint32_t>(attrs.size()));
  if (!building.error.empty()) fail(Code::data, "plugin '{}', role {}: {}", id_, role, building.error);
  if (status != LH_OK) fail(Code::plugin, "plugin '{}', role {}: {}", id_, role, offered_.host->failure);
  if (graph.outputs.empty()) fail(Code::plugin, "plugin '{}', role {}: the graph has no output", id_, role);
  return graph;
}

}  // namespace lh
