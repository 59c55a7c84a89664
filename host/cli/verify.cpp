// lora-host verify: which programs load every key of a LoRA file.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "compile/plugin_lora.h"
#include "config/dtype.h"
#include "core/error.h"
#include "encode/try_model.h"
#include "io/lora_verify.h"
#include "plugin/model.h"
#include "plugin/registry.h"

namespace lh {

int run_verify(const Options& options) {
  const Registry& registry = *options.registry;
  try_model(registry, options.config.model, options.config.plugin, compute_dtype(options.config.train.dtype));
  const Model model(registry, options.config.model, options.config.plugin);
  const LoraFile lora = read_lora(options.input);
  const std::shared_ptr<const ForeignLora> foreign = plugin_lora(registry, *lora.file);
  if (!foreign && !is_lora(*lora.file)) refuse_no_lora(*lora.file);
  const VerifyReport report =
      verify_lora(lora, model.spec(), model.checkpoint().weights(), options.programs, foreign.get());
  if (options.json)
    fmt::print("{}\n", verify_json(report, options.programs).dump(2));
  else
    fmt::print("{}", verify_text(report, options.input.string()));
  return report.good(options.programs) ? 0 : static_cast<int>(Code::data);
}

}  // namespace lh
