// lora-host inspect: what a safetensors file or model directory holds.
#include "io/inspect.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "io/lora_file.h"
#include "plugin/inspect_checkpoint.h"

namespace lh {

int run_inspect(const Options& options) {
  const bool lora = !std::filesystem::is_directory(options.input) && is_lora(Safetensors(options.input));
  fmt::print("{}", inspect(options.input));
  if (lora) return 0;
  const Registry registry(options.plugin_dirs, {});
  fmt::print("{}", report_text(inspect_checkpoint(registry, options.input)));
  return 0;
}

}  // namespace lh
