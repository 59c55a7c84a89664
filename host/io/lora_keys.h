// Keys of LoRA files: the name of a module and the suffix of one of its tensors, in the suffixes of every tool.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lh {

enum class LoraPart {
  down,       // A: [rank, in, ...]
  up,         // B: [out, rank, ...]
  mid,        // core of a Tucker decomposition, [rank, rank, kh, kw]
  alpha,      // one number
  magnitude,  // DoRA: norms that the weight is brought to
  hada_w1_a,
  hada_w1_b,
  hada_w2_a,
  hada_w2_b,
  hada_t1,
  hada_t2,
  lokr_w1,
  lokr_w1_a,
  lokr_w1_b,
  lokr_w2,
  lokr_w2_a,
  lokr_w2_b,
  lokr_t2,
  diff,       // the whole change of the weight
  diff_bias,  // of the bias
  unsupported,
};

// "lora_unet_x.lora_down.weight" is {"lora_unet_x", down, "lora_down"}.
struct LoraKey {
  std::string module;
  LoraPart part = LoraPart::down;
  std::string_view family;  // tensors that programs load alike: "lora_down", "alpha", "loha", ...
  std::string_view why;     // of an unsupported part: what it is
};

// The family of DoRA magnitudes of rows (the output axis), which its suffix cannot tell from those of columns.
inline constexpr std::string_view output_axis_family = "dora_scale.rows";

// Nothing for a key that is no tensor of a LoRA.
std::optional<LoraKey> split_lora_key(const std::string& key);

// No tensors: what a program that takes it reads of a file's metadata (io/lora_scale.h).
inline constexpr std::string_view metadata_family = "adapter_metadata";

// Names for `tensors` in a plugin's lora_loaders; "pairs" stands for all families of down and up.
std::vector<std::string_view> lora_families();
std::vector<std::string_view> lora_pair_families();

}  // namespace lh
