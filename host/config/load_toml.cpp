// Files of kohya's scripts: TOML becomes our keys (kohya.h), which are then read as those of a YAML file are.
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "config/kohya.h"
#include "config/load.h"
#include "config/toml.h"
#include "core/error.h"
#include "core/log.h"

namespace lh {
namespace {

namespace fs = std::filesystem;
using yaml::Kind;
using yaml::Node;

bool is_toml(const fs::path& file) { return file.extension() == ".toml"; }

// The prompts of a text file, a line each, in place of its path.
void read_prompts(Node& document, std::vector<yaml::Problem>& problems) {
  for (auto& [section, keys] : document.entries)
    for (auto& [key, value] : keys.entries) {
      if (section.text != "sample" || key.text != "prompts" || value.kind != Kind::scalar) continue;
      const fs::path file = value.text;
      if (file.extension() != ".txt") {
        problems.push_back({value.place, fmt::format("sample_prompts: expected a .txt file with a prompt in each line, "
                                                     "found {}. Write its prompts so",
                                                     value.text)});
        continue;
      }
      Node list{.kind = Kind::list, .place = value.place};
      std::istringstream lines(read_config_text(file));
      for (std::string line; std::getline(lines, line);) {
        line.erase(line.find_last_not_of(" \t\r") + 1);
        if (!line.empty() && line[0] != '#')
          list.items.push_back({.kind = Kind::scalar, .place = value.place, .text = line, .quoted = true});
      }
      value = std::move(list);
    }
}

struct Read {
  Config config;
  kohya::Translated made;
};

Read read_toml(const fs::path& file, const std::function<kohya::Translated(const Node&)>& translate,
               ConfigNeeds needs) {
  std::vector<yaml::Problem> problems;
  const Node tree = toml_file::parse(read_config_text(file), problems);
  const bool parsed = problems.empty();
  kohya::Translated made = parsed ? translate(tree) : kohya::Translated{};
  problems.insert(problems.end(), made.problems.begin(), made.problems.end());
  read_prompts(made.document, problems);
  std::vector<std::string> lines;
  lines.reserve(problems.size());
  std::ranges::stable_sort(problems, {}, &yaml::Problem::place);
  for (const auto& [place, text] : problems)
    lines.push_back(fmt::format("{}:{}:{}: {}", file.string(), place.line, place.column, text));
  Config defaults = kohya::defaults();
  defaults.notes.insert(defaults.notes.end(), made.notes.begin(), made.notes.end());
  Config config;
  try {
    if (parsed) config = config_of(made.document, file.string(), needs, defaults);
  } catch (const Error& error) {
    lines.push_back(error.what());
  }
  if (!lines.empty()) throw Error(Code::config, fmt::format("{}", fmt::join(lines, "\n")));
  if (!made.ignored.empty())
    log_info("{}: keys without effect here (docs/from-kohya.md says why): {}", file.string(),
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
  try {
    ConfigNeeds own = needs;
    own.datasets = needs.datasets && dataset_config.empty();
    if (is_toml(file)) {
      Read read = read_toml(file, kohya::training, own);
      config = std::move(read.config);
      training = std::move(read.made);
    } else if (!file.empty()) {
      config = load_config(file, own);
    }
  } catch (const Error& error) {
    lines.push_back(error.what());
  }
  try {
    if (!dataset_config.empty()) {
      const auto translate = [&](const Node& tree) { return kohya::datasets(tree, training.arguments); };
      const Config data = read_toml(dataset_config, translate, {.model = false, .datasets = needs.datasets}).config;
      config.datasets = data.datasets;
      if (data.train.batch_size != 1) config.train.batch_size = data.train.batch_size;
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
