// Opens each expert as a model of its own, sees that it has the same tensors, and reads them in place.
#include "compile/other_experts.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "compile/model_loras.h"
#include "config/value.h"
#include "core/error.h"

namespace lh {
namespace {

constexpr const char* own_role = "denoiser";

bool of_denoiser(const std::string& weight) { return weight.find(':') == weight.npos; }

// Throws unless `other` can stand in the places of `own`.
void require_same_tensors(const std::string& key, const Model& own, const Model& other) {
  const auto& theirs = other.checkpoint().weights();
  for (const auto& [name, desc] : own.checkpoint().weights()) {
    if (!of_denoiser(name)) continue;
    const auto found = theirs.find(name);
    const std::string what = found == theirs.end()               ? "there is none"
                             : found->second.shape == desc.shape ? ""
                                                                 : fmt::format("found {}", found->second.shape.text());
    if (!what.empty())
      fail(Code::data, "model.{}: {}: \"{}\": expected {}, as the other expert has it, {}. Give the two of one model",
           key, other.checkpoint().file_of(theirs.begin()->first).string(), name, desc.shape.text(), what);
  }
}

}  // namespace

const Expert* expert_of(const Model& model) {
  const auto& shares = model.recipe().denoisers;
  if (shares.size() < 2) return nullptr;
  const auto& each = model.spec().experts.each;
  const auto found = std::ranges::find_if(each, [&](const Expert& one) {
    return std::ranges::find(shares, one.name, &DenoiserSpec::role) == shares.end();
  });
  return found == each.end() ? nullptr : &*found;
}

std::vector<LoraInput> loras_of_expert(const Registry& registry, const ModelConfig& config, const Expert& expert) {
  const auto given = config.given.find(expert.lora_key());
  if (given == config.given.end() || given->second.text.empty()) return {};
  return {lora_of_key(registry, expert.lora_key(), schema::expand_home(given->second.text))};
}

std::vector<LoraInput> loras_in_samples(const Registry& registry, const ModelConfig& config, const Model& model) {
  std::vector<LoraInput> all = sample_loras(registry, config);
  if (expert_of(model) == nullptr) return all;
  for (const Expert& expert : model.spec().experts.each)
    for (LoraInput& lora : loras_of_expert(registry, config, expert)) all.push_back(std::move(lora));
  return all;
}

std::string why_alone(const Model& model) {
  const Expert* const own = expert_of(model);
  if (own == nullptr) return "";
  std::vector<std::string> keys;
  for (const Expert& other : model.spec().experts.each)
    if (&other != own) keys.push_back("model." + other.path_key());
  return fmt::format("all levels by {}: name what has the others' ({}) for samples of all experts", own->word,
                     fmt::join(keys, ", "));
}

OtherExperts::OtherExperts(const Registry& registry, const ModelConfig& config, const Model& own,
                           const std::set<std::string>& images,
                           const std::map<std::string, std::vector<LoraInput>>& loras) {
  const Expert* const self = expert_of(own);
  if (self == nullptr) return;
  const Experts& experts = own.spec().experts;
  ModelConfig known = config;  // which one name_or_path is, where only its folder said so
  if (experts.said(known) == nullptr) known.given[experts.setting].text = self->word;
  std::vector<LevelShare> shares;
  for (const DenoiserSpec& share : own.recipe().denoisers) {
    if (share.role == own_role) {
      shares.push_back({share.above, &own, self->name});
      continue;
    }
    const Expert* const other = experts.find(share.role);
    if (other == nullptr || experts.weights_of(*other, known).empty()) return;
    const Model& model =
        *opened_.emplace_back(std::make_unique<Model>(registry, experts.alone(*other, known), own.id(), images));
    require_same_tensors(other->path_key(), own, model);
    std::vector<LoraInput> merged = loras_of_expert(registry, known, *other);
    if (const auto more = loras.find(other->name); more != loras.end())
      merged.insert(merged.end(), more->second.begin(), more->second.end());
    opened_.back()->merge(merged);
    shares.push_back({share.above, &model, other->name});
  }
  shares_ = std::move(shares);
  own_ = now_ = static_cast<size_t>(std::ranges::find(shares_, &own, &LevelShare::model) - shares_.begin());
}

void OtherExperts::use(size_t share, Device& device, Weights& weights, const Graph& graph) {
  if (shares_.empty() || share == now_) return;
  const Checkpoint& checkpoint = shares_.at(share).model->checkpoint();
  std::vector<std::string> names = weight_names(graph, checkpoint);
  std::erase_if(names, [](const std::string& name) { return !of_denoiser(name); });
  now_ = shares_.size();  // neither, until all are read
  weights.read_again(device, checkpoint, graph, names);
  now_ = share;
}

std::string OtherExperts::text() const {
  std::vector<std::string> parts;
  for (const LevelShare& share : shares_)
    parts.push_back(fmt::format(
        "{} by {}", share.above > 0 ? fmt::format("levels above {}", share.above) : "the others", share.expert));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace lh
