#include "compile/adapter_selection.h"

#include <algorithm>

#include "core/error.h"

namespace lh {
namespace {

AdapterSpec adapter(int64_t rank, std::optional<double> alpha, const NetworkConfig& network, uint64_t seed,
                    const AdapterRule* rule) {
  return {.rank = rank,
          .alpha = alpha.value_or(static_cast<double>(rank)),
          .dropout = network.dropout,
          .seed = seed,
          .rank_dropout = network.rank_dropout,
          .module_dropout = network.module_dropout,
          .rule = rule};
}

}  // namespace

SelectAdapter at_strength(const SelectAdapter& select, double strength) {
  if (strength == 1) return select;
  return [select, strength, own = std::make_shared<AdapterSpec>()](const std::string& module) -> const AdapterSpec* {
    const AdapterSpec* spec = select(module);
    if (spec == nullptr) return nullptr;
    *own = *spec;
    own->strength *= strength;
    return own.get();
  };
}

AdapterSelection::AdapterSelection(const NetworkConfig& network, const Recipe& recipe, uint64_t seed,
                                   const std::map<std::string, Desc>& weights, bool text_encoders,
                                   std::shared_ptr<const AdapterRule> rule)
    : rule_(std::move(rule)),
      ranks_("network.module_ranks", network.module_ranks),
      alphas_("network.module_alphas", network.module_alphas),
      linear_(adapter(network.linear, network.linear_alpha, network, seed, rule_.get())),
      conv_(adapter(network.conv, network.conv_alpha, network, seed, rule_.get())),
      only_(network.only_if_contains),
      ignore_(network.ignore_if_contains) {
  for (const std::string& text : network.target_modules) (void)module_pattern("network.target_modules", text);
  targets_ = LoraTargets(network.target_modules.empty() ? recipe.lora_targets : network.target_modules);
  if (network.conv > 0) {
    if (recipe.lora_conv_targets.empty())
      fail(Code::config, "network.conv: a {} model has no convolutions to adapt. Remove it", recipe.family);
    conv_targets_ = LoraTargets(recipe.lora_conv_targets);
    for (const auto& [name, desc] : weights)
      if (desc.shape.rank() == 4 && desc.shape[2] * desc.shape[3] > 1) large_kernels_.insert(module_of(name));
  }
  if (!text_encoders) return;
  if (recipe.lora_text_targets.empty())
    fail(Code::config,
         "train.train_text_encoder: the text encoders of a {} model cannot be trained here. Set it to false; in a file "
         "of kohya's scripts, network_train_unet_only = true",
         recipe.family);
  for (const auto& [encoder, patterns] : recipe.lora_text_targets) text_targets_.emplace(encoder, patterns);
}

void AdapterSelection::require_use(const std::vector<std::string>& modules) const {
  ranks_.require_use(modules);
  alphas_.require_use(modules);
}

const AdapterSpec* AdapterSelection::spec_of(const std::string& module) const {
  if (const std::string encoder = component_of(module); !encoder.empty()) {
    const auto targets = text_targets_.find(encoder);
    const bool target = targets != text_targets_.end() && targets->second.contain(module.substr(encoder.size() + 1));
    return target ? &linear_ : nullptr;
  }
  if (targets_.contain(module)) return &linear_;
  if (!conv_targets_.contain(module)) return nullptr;
  return large_kernels_.contains(module) ? &conv_ : &linear_;
}

const AdapterSpec* AdapterSelection::operator()(const std::string& module) const {
  const auto contained = [&](const std::string& part) { return module.find(part) != std::string::npos; };
  const AdapterSpec* spec = spec_of(module);
  if (spec == nullptr || (!only_.empty() && std::ranges::none_of(only_, contained)) ||
      std::ranges::any_of(ignore_, contained))
    return nullptr;
  const std::optional<double> rank = ranks_.of(module), alpha = alphas_.of(module);
  if (!rank && !alpha) return spec;
  own_ = *spec;
  if (rank) own_.rank = static_cast<int64_t>(*rank), own_.alpha = *rank;
  if (alpha) own_.alpha = *alpha;
  return &own_;
}

}  // namespace lh
