// The texts that belong to the images of a dataset: from files beside them, or from one file for all of them.
#pragma once

#include <array>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/config.h"

namespace lh {

// Extensions of caption files that trainers write.
inline constexpr std::array caption_extensions{"txt", "caption", "json"};

// The texts of one caption file, as datasets[].caption_lines has it; of a .json file its `caption`, a text or a list of
// them, each with its `tags` behind it. Empty where it has none. Throws lh::Error(Code::data).
std::vector<std::string> read_texts(const std::filesystem::path& file, const DatasetConfig& dataset);

// The same of an entry of JSON: {"caption": ..., "tags": ...}, where Hugging Face's files say text for caption, or a
// text alone.
std::vector<std::string> texts_of_entry(const nlohmann::json& entry, const DatasetConfig& dataset);
// The first of these keys that an object has; null: it has none.
nlohmann::json first_member(const nlohmann::json& entry, std::initializer_list<const char*> names);

// Beside the image, with datasets[].caption_ext, in capitals where only such a file is there; neither need be there.
std::filesystem::path caption_file(const std::filesystem::path& image, const DatasetConfig& dataset);

// Where captions of images that have none seem to be instead: "cat.caption is beside cat.png: set caption_ext:
// caption". Empty: nowhere.
std::string captions_elsewhere(const std::vector<std::filesystem::path>& without, const DatasetConfig& dataset);

// The texts of an image: from `metadata` (of read_metadata) where it has the image, else from its caption file. Empty
// where there are none. Throws as read_texts does.
std::vector<std::string> texts_of(const std::filesystem::path& image, const DatasetConfig& dataset,
                                  const std::map<std::filesystem::path, std::vector<std::string>>& metadata);

// The further image of each image in a JSONL file: control_path, control_path_0, control_path_1 by number. Empty where
// the file that it names is not there.
std::map<std::filesystem::path, std::filesystem::path> read_control_paths(const DatasetConfig& dataset,
                                                                          const std::filesystem::path& list,
                                                                          int64_t number,
                                                                          std::vector<std::string>& problems);

// datasets[].metadata_file: texts by image file. Paths in it are those in folder_path, or whole; an extension may be
// missing. What cannot be read, and an image that is there twice, goes into `problems`.
std::map<std::filesystem::path, std::vector<std::string>> read_metadata(const DatasetConfig& dataset,
                                                                        std::vector<std::string>& problems);

}  // namespace lh
