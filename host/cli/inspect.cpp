// lora-host inspect: what a safetensors file or model directory holds.
#include "io/inspect.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "plugin/registry.h"

namespace lh {

int run_inspect(const Options& options) {
  const Registry registry(options.plugin_dirs, {});
  std::vector<ModelNames> models;
  for (const Offered<lh_model>& offered : registry.models())
    models.push_back(
        {offered.descriptor->id, CheckpointSpec::parse(offered.descriptor->checkpoint, offered.descriptor->id)});
  if (!options.json) {
    fmt::print("{}", inspect(options.input, models));
    return 0;
  }
  const LoraFile lora = read_lora(options.input);
  if (!is_lora(*lora.file)) fail(Code::data, "{}: --json is for LoRA files, this is none", options.input.string());
  fmt::print("{}\n", lora_json(lora, models).dump(2));
  return 0;
}

}  // namespace lh
