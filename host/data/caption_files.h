// The texts that belong to the images of a dataset: from files beside them, or from one file for all of them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"

namespace lh {

// The texts of one caption file, as datasets[].caption_lines has it; of a .json file its `caption`, a text or a list of
// them, each with its `tags` behind it. Empty where it has none. Throws lh::Error(Code::data).
std::vector<std::string> read_texts(const std::filesystem::path& file, const DatasetConfig& dataset);

// datasets[].metadata_file: texts by image file. Paths in it are those in folder_path, or whole; an extension may be
// missing. What cannot be read goes into `problems`.
std::map<std::filesystem::path, std::vector<std::string>> read_metadata(const DatasetConfig& dataset,
                                                                        std::vector<std::string>& problems);

}  // namespace lh
