// Files of kohya's scripts and of musubi-tuner, and presets of the interface kohya_ss: TOML or JSON becomes our keys
// (kohya.h, musubi.h, kohya_ss.h), which are then read as those of a YAML file are.
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "config/kohya.h"
#include "config/kohya_ss.h"
#include "config/load.h"
#include "config/musubi.h"
#include "config/toml.h"
#include "config/value.h"
#include "core/error.h"
#include "core/log.h"

namespace lh {
namespace {

namespace fs = std::filesystem;
using yaml::Kind;
using yaml::Node;

bool is_toml(const fs::path& file) { return file.extension() == ".toml"; }

// sd-scripts take datasets as JSON, too, which is YAML, and presets are JSON.
Node parsed(const fs::path& file, std::vector<yaml::Problem>& problems) {
  const std::string text = read_config_text(file);
  return file.extension() == ".json" ? yaml::parse(text, problems) : toml_file::parse(text, problems);
}

bool is_preset(const fs::path& file) {
  std::vector<yaml::Problem> problems;
  return file.extension() == ".json" && kohya_ss::is_preset(parsed(file, problems)) && problems.empty();
}

// The prompts of a text file, a line each, in place of its path.
void read_prompts(kohya::Translated& made) {
  for (auto& [section, keys] : made.document.entries)
    for (auto& [key, value] : keys.entries) {
      if (section.text != "sample" || key.text != "prompts" || value.kind != Kind::scalar) continue;
      const fs::path file = value.text;
      if (file.extension() != ".txt") {
        made.problems.push_back({value.place, fmt::format("sample_prompts: expected a .txt file with a prompt in each "
                                                          "line, found {}. Write its prompts so",
                                                          value.text)});
        continue;
      }
      Node list{.kind = Kind::list, .place = value.place};
      std::istringstream lines(read_config_text(file));
      for (std::string line; std::getline(lines, line);) {
        line.erase(line.find_last_not_of(" \t\r") + 1);
        if (line.empty() || line[0] == '#') continue;
        if (made.prompt) line = made.prompt(line, value.place, made);
        list.items.push_back({.kind = Kind::scalar, .place = value.place, .text = line, .quoted = true});
      }
      value = std::move(list);
    }
}

// Whose files they are.
struct Program {
  Config (*defaults)();
  const char* guide;
};
constexpr Program sd_scripts = {kohya::defaults, "docs/from-kohya.md"},
                  musubi_tuner = {musubi::defaults, "docs/from-musubi.md"};

struct Read {
  Config config;
  kohya::Translated made;
};

Read read_toml(const fs::path& file,
               const std::function<std::pair<kohya::Translated, const Program*>(const Node&)>& translate,
               ConfigNeeds needs) {
  std::vector<yaml::Problem> problems;
  const Node tree = parsed(file, problems);
  const bool well_formed = problems.empty();
  auto [made, program] = well_formed ? translate(tree) : std::pair(kohya::Translated{}, &sd_scripts);
  read_prompts(made);
  problems.insert(problems.end(), made.problems.begin(), made.problems.end());
  std::vector<std::string> lines;
  lines.reserve(problems.size());
  std::ranges::stable_sort(problems, {}, &yaml::Problem::place);
  for (const auto& [place, text] : problems)
    lines.push_back(fmt::format("{}:{}:{}: {}", file.string(), place.line, place.column, text));
  Config defaults = program->defaults();
  defaults.notes.insert(defaults.notes.end(), made.notes.begin(), made.notes.end());
  if (!made.dataset_config.empty()) needs.datasets = false;
  Config config;
  try {
    if (well_formed) config = config_of(made.document, file.string(), needs, defaults);
  } catch (const Error& error) {
    lines.push_back(error.what());
  }
  if (!lines.empty()) throw Error(Code::config, fmt::format("{}", fmt::join(lines, "\n")));
  if (!made.ignored.empty())
    log_info("{}: keys without effect here ({} says why): {}", file.string(), program->guide,
             fmt::join(made.ignored, ", "));
  return {std::move(config), std::move(made)};
}

// Their masks come by the key of images that a ControlNet is given.
void use_masks(Config& config) {
  for (DatasetConfig& dataset : config.datasets)
    if (auto control = dataset.images.extract("control")) dataset.mask_path = control.mapped().at(0).text;
}

}  // namespace

Config load_config(const fs::path& file, const fs::path& dataset_config, ConfigNeeds needs) {
  std::vector<std::string> lines;
  Config config;
  kohya::Translated training;
  const std::span<const PluginKeys> plugins =
      needs.plugins == nullptr ? std::span<const PluginKeys>() : std::span(*needs.plugins);
  try {
    ConfigNeeds own = needs;
    own.datasets = needs.datasets && dataset_config.empty();
    if (is_toml(file) || is_preset(file)) {
      const auto translate = [&](const Node& tree) {
        if (const Node* datasets = tree.find("datasets"); datasets != nullptr && datasets->kind == Kind::list)
          fail(Code::config,
               "{}:{}:{}: these are datasets: give the file with --dataset_config, beside --config FILE with training "
               "arguments or --model PATH",
               file.string(), datasets->place.line, datasets->place.column);
        if (kohya_ss::is_preset(tree)) return std::pair(kohya_ss::training(tree, plugins), &sd_scripts);
        return musubi::is_training(tree) ? std::pair(musubi::training(tree, plugins), &musubi_tuner)
                                         : std::pair(kohya::training(tree), &sd_scripts);
      };
      Read read = read_toml(file, translate, own);
      config = std::move(read.config);
      training = std::move(read.made);
    } else if (!file.empty()) {
      config = load_config(file, own);
    }
  } catch (const Error& error) {
    lines.push_back(error.what());
  }
  const fs::path of_datasets = dataset_config.empty() ? schema::expand_home(training.dataset_config) : dataset_config;
  try {
    if (!of_datasets.empty()) {
      const auto translate = [&](const Node& tree) {
        return musubi::is_datasets(tree)
                   ? std::pair(musubi::datasets(tree, musubi::fps_of(plugins, config.plugin)), &musubi_tuner)
                   : std::pair(kohya::datasets(tree, training.arguments), &sd_scripts);
      };
      const Config data = read_toml(of_datasets, translate, {.model = false, .datasets = needs.datasets}).config;
      config.datasets = data.datasets;
      if (data.train.validation_split > 0) config.train.validation_split = data.train.validation_split;
      if (data.train.validation_seed) config.train.validation_seed = data.train.validation_seed;
      config.notes.insert(config.notes.end(), data.notes.begin() + 1, data.notes.end());  // without that on defaults
    }
  } catch (const Error& error) {
    lines.push_back(error.what());
  }
  if (!lines.empty()) throw Error(Code::config, fmt::format("{}", fmt::join(lines, "\n")));
  if (training.masked_loss) use_masks(config);
  return config;
}

}  // namespace lh
