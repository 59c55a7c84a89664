// lora-host merge: LoRA files into a checkpoint, or into one LoRA.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/lora_output.h"
#include "compile/plugin_lora.h"
#include "config/dtype.h"
#include "config/model_keys.h"
#include "core/error.h"
#include "core/signals.h"
#include "lora/input.h"
#include "lora/merge_checkpoint.h"
#include "lora/merge_loras.h"
#include "lora/modules.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

std::string terms(const std::vector<LoraInput>& loras) {
  std::string text;
  for (const LoraInput& lora : loras)
    text += fmt::format("{}{} * {}", text.empty() ? "" : " + ", lora.path.filename().string(), lora.strength);
  return text;
}

// The files of the model's components, by their keys.
std::map<std::string, fs::path> files_of(const Options& options, const Model& model) {
  const ModelConfig& config = options.config.model;
  const ModelValues values = read_given(config, model.id(), options.registry->model_keys());
  std::map<std::string, fs::path> files{{"name_or_path", config.name_or_path}};
  for (const ComponentSpec& component : model.spec().components)
    if (const auto file = values.files.find(component.config_key); file != values.files.end()) files.insert(*file);
  return files;
}

int into_checkpoint(const Options& options, const Model& model, const std::vector<LoraInput>& loras,
                    Unmatched unmatched) {
  std::optional<DType> dtype;
  if (!options.tool.dtype.empty()) dtype = compute_dtype(options.tool.dtype);
  const std::map<std::string, fs::path> files = files_of(options, model);
  for (const MergedFile& file : merge_checkpoint(model.spec(), files, loras, unmatched, dtype, options.output))
    fmt::print("{}: {} of {} tensors changed, of {}\n", file.to.string(), file.changed, file.tensors,
               file.from.string());
  fmt::print("loads where {} does, with {} in it\n", options.config.model.name_or_path.string(), terms(loras));
  return 0;
}

int into_lora(const Options& options, const Model& model, const std::vector<LoraInput>& loras, Unmatched unmatched) {
  const MergedLora merged = merge_loras(model.spec(), model.checkpoint(), loras, options.tool.choice, unmatched);
  std::vector<fs::path> paths;
  paths.reserve(loras.size());
  for (const LoraInput& lora : loras) paths.push_back(lora.path);
  LoraMetadata metadata{shared_metadata(paths)};
  for (const auto& [key, value] : model_metadata(model)) metadata.entries[key] = value;
  metadata.entries[origin_entry] = terms(loras);
  std::string format = options.tool.format;
  if (format.empty()) {
    const LoraNameTable names(model.spec(), model.checkpoint().weights());
    format = format_of(read_lora(paths.front()), names, model.spec());
  }
  const DType dtype = options.tool.dtype.empty() ? DType::f32 : compute_dtype(options.tool.dtype);
  write_lora(options.output, merged.modules, model.spec(), format, dtype, metadata);
  fmt::print("{}", report_table(merged.lines));
  say_written(options, &model);
  return 0;
}

}  // namespace

int run_merge(const Options& options) {
  std::vector<fs::path> inputs{options.config.model.name_or_path};
  for (const LoraInput& lora : options.loras) inputs.push_back(lora.path);
  prepare_output(options, inputs);
  const auto model = open_model(options);
  std::vector<LoraInput> loras = options.loras;
  for (LoraInput& lora : loras) {
    open_lora(lora.path);  // says what is wrong with a file before anything is read with it
    lora.foreign = plugin_lora(*options.registry, Safetensors(lora.path));
  }
  install_signal_handlers();
  const Unmatched unmatched = options.tool.skip_unmatched ? Unmatched::leave_out : Unmatched::refuse;
  return options.tool.into == "lora" ? into_lora(options, *model, loras, unmatched)
                                     : into_checkpoint(options, *model, loras, unmatched);
}

}  // namespace lh
