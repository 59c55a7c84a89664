// lora-host convert: a LoRA file in another spelling or type.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/lora_output.h"
#include "compile/plugin_lora.h"
#include "config/dtype.h"
#include "core/signals.h"
#include "lora/input.h"
#include "lora/modules.h"
#include "lora/resize.h"

namespace lh {
namespace {

void write_in_format(const Options& options, const Model& model, const LoraFile& file, DType dtype) {
  const auto& weights = model.checkpoint().weights();
  const LoraNameTable names(model.spec(), weights);
  const auto foreign = plugin_lora(*options.registry, *file.file);
  const std::vector<LoraModule> modules =
      foreign ? modules_of(file, *foreign, names, weights) : modules_of(file, names, weights, Unmatched::refuse);
  write_lora(options.output, modules, model.spec(), options.tool.format, dtype, {carried_metadata(*file.file)});
}

}  // namespace

int run_convert(const Options& options) {
  prepare_output(options, {options.input});
  const auto model = options.config.model.name_or_path.empty() ? nullptr : open_model(options);
  install_signal_handlers();
  const LoraFile file = open_lora(options.input);
  const DType dtype = options.tool.dtype.empty() ? type_of(file) : compute_dtype(options.tool.dtype);
  if (options.tool.format.empty()) {
    ResizedLora same = retype_lora(file, dtype);
    save_lora(options.output, std::move(same.tensors), std::move(same.metadata));
  } else {
    write_in_format(options, *model, file, dtype);
  }
  say_written(options, model.get());
  return 0;
}

}  // namespace lh
