// lora-host extract: what a tuned checkpoint has and its base has not, as a LoRA.
#include "lora/extract.h"

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/lora_output.h"
#include "config/dtype.h"
#include "core/error.h"
#include "core/signals.h"
#include "io/lora_read.h"
#include "io/weight_files.h"
#include "lora/input.h"

namespace lh {

int run_extract(const Options& options) {
  const std::filesystem::path& base = options.config.model.name_or_path;
  std::error_code none;
  if (!std::filesystem::exists(options.input, none))
    fail(Code::config, "extract: there is no {}. Give the tuned checkpoint, and as --model the one it was trained from",
         options.input.string());
  if (!std::filesystem::is_directory(options.input, none) && is_lora(*FileCache().open(options.input)))
    fail(Code::config,
         "extract: {} is a LoRA already, expected a tuned checkpoint. For one of another rank: lora-host resize",
         options.input.string());
  prepare_output(options, {options.input, base});
  const auto model = open_model(options);
  const Checkpoint tuned(model->spec(), {{"name_or_path", options.input}});
  install_signal_handlers();
  const ExtractedLora found =
      extract_lora(model->spec(), model->checkpoint(), tuned, options.tool.choice, options.tool.biases);
  LoraMetadata metadata{model_metadata(*model)};
  metadata.entries[origin_entry] = fmt::format("{} - {}", options.input.filename().string(), base.filename().string());
  metadata.entries["modelspec.title"] = options.output.stem().string();
  metadata.entries["ss_output_name"] = options.output.stem().string();
  const std::string format = options.tool.format.empty() ? "kohya" : options.tool.format;
  const DType dtype = options.tool.dtype.empty() ? DType::f32 : compute_dtype(options.tool.dtype);
  write_lora(options.output, found.modules, model->spec(), format, dtype, metadata);
  fmt::print("{}", report_table(found.lines));
  if (found.small > 0)
    fmt::print("{} weights that differ are no matrices, biases and norms, {}: {:.4f}% of all squared differences\n",
               found.small,
               options.tool.biases ? "and are in the file as they differ" : "and are left out (--biases takes them)",
               100 * found.small_share);
  say_written(options, model.get());
  return 0;
}

}  // namespace lh
