// A LoRA file that a plugin's adapter made, by what its metadata says of it: the plugin's own description makes the new
// weight, on the CPU in float32.
#pragma once

#include <memory>

#include "io/foreign_lora.h"
#include "plugin/registry.h"

namespace lh {

// Nothing for a file of the adapters that files themselves tell (docs/lora-files.md). Throws lh::Error(Code::data)
// where the adapter is in no plugin that is there, or does not take the options of the file.
std::shared_ptr<const ForeignLora> plugin_lora(const Registry& registry, const WeightFile& file);

}  // namespace lh
