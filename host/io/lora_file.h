// Writes LoRA files: module names in the spelling of each tool, tensors and metadata (docs/lora-files.md).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace lh {

struct LoraModule {
  std::string name;  // canonical module, "double_blocks.0.img_attn.qkv"; "<component>:" before it unless the denoiser's
  // f32 [rank, in], [out, rank]; of a convolution [rank, in, KH, KW], [out, rank, 1, 1]; no elements where it has no
  // such pair.
  HostTensor down, up;
  double alpha = 0;                                             // 0: it has none
  std::vector<std::pair<std::string, HostTensor>> others = {};  // by the end of their keys: "hada_w1_a", "dora_scale"
  int64_t rank = 0;                                             // of one without a pair; 0: it has none
  bool has_pair() const { return !down.data.empty(); }
};

struct LoraMetadata {  // what only the caller knows; the rest is derived
  std::map<std::string, std::string> entries;
};

// Throws what write_lora would throw for these modules and this format: before there is something to save. The ranks
// and values do not matter.
void check_lora_names(const std::vector<LoraModule>& modules, const CheckpointSpec& spec, const std::string& format);

// format: "kohya" (prefix + name with _, .lora_down/.lora_up/.alpha), "comfyui" (prefix + name, the same tensors) or
// "diffusers" (.lora_A/.lora_B, split through the key map, alpha folded into B, one rank for all modules of a
// component; DoRA with a norm for each output as .lora_magnitude_vector; other adapters are refused). dtype: of all
// tensors but alpha, which is always F32 of rank 0.
void write_lora(const std::filesystem::path& path, const std::vector<LoraModule>& modules, const CheckpointSpec& spec,
                const std::string& format, DType dtype, const LoraMetadata& metadata);

// What the modules say of themselves under kohya's keys: rank and alpha, "Dynamic" where they differ.
std::map<std::string, std::string> network_metadata(const std::vector<LoraModule>& modules);

struct NamedTensor {
  std::string name;
  HostTensor tensor;
};
// The end of every LoRA file: tensors as they are called, none of them with a NaN or an infinity; hashes, seal, the
// verified write. Nothing is written where it throws.
void save_lora(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
               std::map<std::string, std::string> metadata);

}  // namespace lh
