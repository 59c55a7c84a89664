#include "cli/lora_output.h"

#include <fmt/core.h>

#include "cli/output_file.h"
#include "compile/plugin_lora.h"
#include "config/dtype.h"
#include "core/error.h"
#include "encode/try_model.h"
#include "io/lora_verify.h"

namespace lh {

namespace fs = std::filesystem;

void prepare_output(const Options& options, const std::vector<fs::path>& inputs) {
  const fs::path& out = options.output;
  std::error_code none;
  for (const fs::path& input : inputs)
    if (fs::exists(out, none) && fs::equivalent(out, input, none))
      fail(Code::config, "--out {}: is the input. Give another name", out.string());
  const bool folder = fs::is_directory(out, none);
  if (folder && options.tool.into != "checkpoint")
    fail(Code::config, "--out {}: is a folder, expected a file to write", out.string());
  if (!folder) refuse_replacing(options);
  const fs::path parent = out.has_parent_path() ? out.parent_path() : fs::path(".");
  make_folder(parent);
  remove_leftovers(parent);
}

std::unique_ptr<Model> open_model(const Options& options) {
  const Config& config = options.config;
  try_model(*options.registry, config.model, config.plugin, compute_dtype(config.train.dtype));
  return std::make_unique<Model>(*options.registry, config.model, config.plugin);
}

std::map<std::string, std::string> model_metadata(const Model& model) {
  std::map<std::string, std::string> entries = model.recipe().metadata;
  entries["lora_host.family"] = model.recipe().family;
  entries["lora_host.variant"] = model.recipe().variant;
  return entries;
}

void say_written(const Options& options, const Model* model) {
  const LoraFile file = read_lora(options.output);
  const std::string path = options.output.string();
  if (model == nullptr) {
    fmt::print("{}: {} keys, {} modules\n  lora-host verify FILE --model MODEL says which programs load it\n", path,
               file.file->tensors().size(), file.entries.size());
    return;
  }
  const auto foreign = plugin_lora(*options.registry, *file.file);
  fmt::print("{}",
             verify_text(verify_lora(file, model->spec(), model->checkpoint().weights(), {}, foreign.get()), path));
}

}  // namespace lh
