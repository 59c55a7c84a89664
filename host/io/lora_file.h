// LoRA files, out and in: module names in the spelling of each tool, tensors and metadata (formats:
// docs/lora-files.md).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace lh {

struct LoraModule {
  std::string name;     // canonical module, "double_blocks.0.img_attn.qkv"
  HostTensor down, up;  // f32 [rank, in], [out, rank]
  double alpha = 0;
};

struct LoraMetadata {  // what only the caller knows; the rest is derived
  std::map<std::string, std::string> entries;
};

// format: "kohya" (prefix + name with _, .lora_down/.lora_up/.alpha) or "diffusers" (.lora_A/.lora_B, split through the
// key map, alpha folded into B). dtype: of down and up; alpha is always F32 of rank 0.
void write_lora(const std::filesystem::path& path, const std::vector<LoraModule>& modules, const CheckpointSpec& spec,
                const std::string& format, DType dtype, const LoraMetadata& metadata);

// The content of a LoRA file, modules named as it spells them; alpha is the rank where the file has none.
struct LoraFile {
  std::string spelling;             // "kohya", "diffusers", "native" or "other"
  std::vector<LoraModule> modules;  // by name
  std::vector<std::string> others;  // keys that are no part of a down/up pair
  std::map<std::string, std::string> metadata;
};
LoraFile read_lora(const std::filesystem::path& path);
// Does any key look like half of a LoRA pair?
bool is_lora(const Safetensors& file);

}  // namespace lh
