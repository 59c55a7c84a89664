// What a run's folder says of the run, for the page of `watch`: nothing in it is changed.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace lh {

// The newest folder of a run in `root`, by its metrics. Throws lh::Error(Code::config) where there is none.
std::filesystem::path newest_run(const std::filesystem::path& root);

// {name, live, status, steps, columns, metrics, prompts, samples}; of many steps, means of so many in a row. What is
// not there is left out.
nlohmann::json run_view(const std::filesystem::path& run_folder);

// The file of a sample by its name, "000000250_0.png"; nothing for any other name.
std::optional<std::filesystem::path> sample_file(const std::filesystem::path& run_folder, const std::string& name);

}  // namespace lh
