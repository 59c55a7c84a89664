// lora-host inspect: what a weights file, a model directory or an image holds.
#include "io/inspect.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "data/picture_report.h"
#include "data/video_report.h"
#include "io/foreign_lora.h"
#include "io/record.h"
#include "plugin/inspect_checkpoint.h"
#include "plugin/published.h"

namespace lh {
namespace {

std::vector<ModelNames> names_of(const Registry& registry) {
  std::vector<ModelNames> models;
  for (const ListedModel& model : registry.listed_models())
    models.push_back({model.id, CheckpointSpec::parse(model.checkpoint, model.id)});
  return models;
}

}  // namespace

int run_inspect(const Options& options) {
  if (!std::filesystem::exists(options.input))
    fail(Code::data, "{}: no such file or directory{}", options.input.string(),
         repository_hint(options.input, published_models(Registry(options.plugin_dirs, {}))));
  const auto show = [&](const auto& report) {
    if (options.json)
      fmt::print("{}\n", report_json(report).dump(2));
    else
      fmt::print("{}\n{}", options.input.string(), report_text(report));
    return 0;
  };
  if (is_picture(options.input)) return show(inspect_picture(options.input));
  if (is_video_name(options.input)) return show(inspect_video(options.input));
  const bool file = !std::filesystem::is_directory(options.input);
  FileCache open;  // to the end: whoever looks at the file looks at this one
  const FilePtr weights = file ? open.open(options.input) : nullptr;
  const bool lora = file && (is_lora(*weights) || is_foreign(*weights));
  const Registry registry(options.plugin_dirs, {});
  const std::vector<ModelNames> models = lora ? names_of(registry) : std::vector<ModelNames>{};
  if (options.json) {
    const nlohmann::json json =
        lora ? lora_json(read_lora(options.input), models) : report_json(inspect_checkpoint(registry, options.input));
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  fmt::print("{}", inspect(options.input, models));
  if (!lora && (!file || words_of_record(*weights).empty()))
    fmt::print("{}", report_text(inspect_checkpoint(registry, options.input)));
  return 0;
}

}  // namespace lh
