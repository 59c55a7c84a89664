// lora-host check: looks at training data before it is trained on.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/check_report.h"
#include "cli/commands.h"
#include "config/dtype.h"
#include "core/error.h"
#include "data/further_images.h"
#include "data/tokenizer.h"
#include "encode/try_model.h"
#include "io/file.h"
#include "plugin/model.h"

namespace lh {
namespace {

// What of a check is the model's: the step of buckets, further images, tokenizers.
class ModelsPart {
 public:
  // Where the model cannot be opened, the data is checked all the same, and that is a problem of its own.
  ModelsPart(const Options& options, CheckRequest& request, std::vector<std::string>& problems) {
    const Config& config = options.config;
    try {
      const std::set<std::string> images = keys_of_images(config);
      try_model(*options.registry, config.model, config.plugin, compute_dtype(config.train.dtype), images);
      const Model model(*options.registry, config.model, config.plugin, images);
      request.step = model.recipe().latents.size_step();
      request.image_keys = model.recipe().image_keys();
      for (const auto& [encoder, spec] : model.recipe().tokenizers) {
        tokenizers_.push_back(make_tokenizer(spec, model.tokenizer_places(spec)));
        tokenizers_.back()->frame();  // reads its files
        request.readers.push_back({encoder, tokenizers_.back().get(), spec.length});
      }
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  }

 private:
  std::vector<std::unique_ptr<Tokenizer>> tokenizers_;
};

// "photos_check.html", in the current folder.
std::filesystem::path page_path(const Options& options) {
  if (!options.output.empty()) return options.output;
  const Config& config = options.config;
  const bool bare = config.name == Config{}.name && !config.datasets.empty();
  const std::filesystem::path name =
      bare ? (config.datasets.front().folder_path / "").parent_path().filename() : std::filesystem::path(config.name);
  return (name.empty() || name == "." || name == ".." ? "dataset" : name.string()) + "_check.html";
}

}  // namespace

int run_check(const Options& options) {
  const Config& config = options.config;
  CheckRequest request{.datasets = config.datasets, .defaults = {config.trigger_word, config.train.batch_size}};
  const auto seed =
      static_cast<uint64_t>(config.train.validation_seed.value_or(static_cast<double>(config.train.seed)));
  request.split = {config.train.validation_split, seed};
  std::vector<std::string> problems;
  std::optional<ModelsPart> model;
  if (!config.model.name_or_path.empty()) model.emplace(options, request, problems);
  DatasetCheck check = check_dataset(request);
  check.problems.insert(check.problems.begin(), problems.begin(), problems.end());
  if (config.model.name_or_path.empty())
    check.remarks.push_back(
        fmt::format("no model is named: buckets are in steps of {} pixels, and captions are measured in words",
                    request.step.pixels));
  if (options.json) {
    fmt::print("{}\n", check_json(check).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", check_text(check));
  }
  if (!options.json || !options.output.empty()) {
    const std::filesystem::path page = page_path(options);
    publish_text(page, check_page(check, page.stem().string()));
    if (!options.json) fmt::print("page: {}\n", page.string());
  }
  return check.problems.empty() ? 0 : static_cast<int>(Code::data);
}

}  // namespace lh
