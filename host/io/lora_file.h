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
  HostTensor down, up;  // f32 [rank, in], [out, rank]; of a convolution [rank, in, KH, KW], [out, rank, 1, 1]
  double alpha = 0;
};

struct LoraMetadata {  // what only the caller knows; the rest is derived
  std::map<std::string, std::string> entries;
};

// Throws what write_lora would throw for these modules and this format: before there is something to save. The ranks
// and values do not matter.
void check_lora_names(const std::vector<LoraModule>& modules, const CheckpointSpec& spec, const std::string& format);

// format: "kohya" (prefix + name with _, .lora_down/.lora_up/.alpha), "comfyui" (prefix + name, the same tensors) or
// "diffusers" (.lora_A/.lora_B, split through the key map, alpha folded into B, one rank for all modules of a
// component). dtype: of down and up; alpha is always F32 of rank 0.
void write_lora(const std::filesystem::path& path, const std::vector<LoraModule>& modules, const CheckpointSpec& spec,
                const std::string& format, DType dtype, const LoraMetadata& metadata);

}  // namespace lh
