// lora-host resize: a LoRA file at another rank.
#include "lora/resize.h"

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/lora_output.h"
#include "config/dtype.h"
#include "core/signals.h"
#include "lora/input.h"

namespace lh {

int run_resize(const Options& options) {
  prepare_output(options, {options.input});
  const auto model = options.config.model.name_or_path.empty() ? nullptr : open_model(options);
  install_signal_handlers();
  const LoraFile file = open_lora(options.input);
  std::optional<DType> dtype;
  if (!options.tool.dtype.empty()) dtype = compute_dtype(options.tool.dtype);
  ResizedLora resized = resize_lora(file, options.tool.choice, dtype);
  resized.metadata[origin_entry] = fmt::format("{} resized", options.input.filename().string());
  save_lora(options.output, std::move(resized.tensors), std::move(resized.metadata));
  fmt::print("{}", report_table(resized.lines));
  say_written(options, model.get());
  return 0;
}

}  // namespace lh
