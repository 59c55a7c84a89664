// Scales that stand beside a LoRA's tensors: PEFT's configuration, which diffusers writes into the metadata of a file
// (`lora_adapter_metadata`, with the component before each key, "transformer.lora_alpha") and PEFT into a file of its
// own (`adapter_config.json`). A file with such pairs has no alpha tensors, and without its configuration they would be
// applied at scale 1.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "io/safetensors.h"

namespace lh {

inline constexpr const char* adapter_metadata_entry = "lora_adapter_metadata";

class LoraScales {
 public:
  // The metadata's, else the neighbour's; without either it has none. Throws lh::Error(Code::data) for what is no
  // configuration.
  explicit LoraScales(const WeightFile& file);
  explicit operator bool() const { return configuration_ != nullptr; }
  // "lora_adapter_metadata" or "adapter_config.json".
  const std::string& source() const { return source_; }
  // Of a module as the file names it, with matrices of `rank`: lora_alpha or what alpha_pattern has for it, times
  // sqrt(rank) with use_rslora, so that the scale is alpha / rank. Nothing for a module of a component that the
  // configuration does not have. Throws lh::Error(Code::data) where it says another rank.
  std::optional<double> alpha(const std::string& module, int64_t rank) const;

 private:
  std::string where_, source_;
  std::shared_ptr<const nlohmann::json> configuration_;  // an object
};

}  // namespace lh
