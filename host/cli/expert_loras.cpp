#include "cli/expert_loras.h"

#include <fmt/format.h>

#include <algorithm>

#include "compile/plugin_lora.h"
#include "core/error.h"

namespace lh {
namespace {

// "dog_high_noise" or, of a save on the way, "dog_high_noise_000000250".
bool named_after(const Expert& expert, std::string stem) {
  const size_t digits = stem.find_last_not_of("0123456789");
  if (digits != stem.npos && digits + 1 < stem.size() && stem[digits] == '_') stem.resize(digits);
  return stem.ends_with(expert.suffix());
}

}  // namespace

LorasByExpert loras_by_expert(const Registry& registry, const Model& model, const std::vector<LoraInput>& given) {
  const Expert* const own = expert_of(model);
  const std::vector<Expert> each = own == nullptr ? std::vector<Expert>{} : model.spec().experts.each;
  LorasByExpert all;
  for (LoraInput lora : given) {
    std::string name = own == nullptr ? "" : own->name;
    const std::string text = lora.path.string();
    for (const Expert& expert : each)
      if (text.starts_with(expert.name + "=")) {
        name = expert.name;
        lora.path = text.substr(expert.name.size() + 1);
        break;
      } else if (named_after(expert, lora.path.stem().string())) {
        name = expert.name;
      }
    lora.foreign = plugin_lora(registry, Safetensors(lora.path));
    all[name].push_back(std::move(lora));
  }
  return all;
}

void check_experts(const Model& model, const OtherExperts& experts, const LorasByExpert& loras) {
  const Expert* const own = expert_of(model);
  if (own == nullptr || !experts.shares().empty()) return;
  for (const auto& [name, files] : loras)
    if (name != own->name && !files.empty()) {
      const Expert& other = *model.spec().experts.find(name);
      fail(Code::config,
           "--lora {}: is for {}, and samples are made with {} alone. Name its file with model.{}; for this one's LoRA "
           "write --lora {}=FILE",
           files.front().path.string(), other.word, own->word, other.path_key(), own->name);
    }
}

}  // namespace lh
