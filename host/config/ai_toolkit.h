// What a file in ai-toolkit's wrapper means beside its keys: that program's defaults, and settings that it makes of
// others. docs/from-ai-toolkit.md tells users.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/model_keys.h"
#include "config/yaml.h"

namespace lh::ai_toolkit {

// The type of a process that trains a slider.
inline constexpr const char* slider_type = "concept_slider";

// "[name]" in every text becomes the run's name, "${WORD}" what the environment has.
void replace_marks(yaml::Node& document, const std::string& name, std::vector<yaml::Problem>& problems);
// What a job has where it says nothing.
Config defaults();
DatasetConfig dataset_defaults();
// Keys that mean something else there than here: what is wrong is added to `problems`.
void check(const yaml::Node& process, std::vector<yaml::Problem>& problems);
// After the whole file was read without a problem: settings that follow from others, with notes that say so.
// plugins: null: not known; usual_rate: as ConfigNeeds has it.
void settle(Config& config, const yaml::Node& process, const std::vector<PluginKeys>* plugins,
            const std::function<std::optional<double>(const std::string&)>& usual_rate);

}  // namespace lh::ai_toolkit
