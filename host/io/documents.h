// What a model's files say beside the weights: text files of a diffusers directory, and the metadata of safetensors.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/weight_files.h"

namespace lh {

class Documents {
 public:
  struct Found {
    std::optional<std::string> text;
    std::string absence;  // without a text: what is absent, and where it was looked for
  };

  // The path of the model itself: a diffusers directory or a file.
  void set_root(const std::filesystem::path& path) { root_ = path; }
  // folder: where the component's files are, empty when it is in a single file.
  void add(const std::string& component, const std::filesystem::path& folder, const std::vector<FilePtr>& files) {
    places_[component] = {folder, files};
  }

  // The UTF-8 text file `name` (a path without "..") of the component's folder; component "" is the root. Throws
  // lh::Error(Code::data) for a file that is there but is too large, no text or, named *.json, no JSON.
  Found document(const std::string& component, const std::string& name) const;
  // An entry of __metadata__ in the component's safetensors files, of the first that has it.
  Found metadata(const std::string& component, const std::string& key) const;

 private:
  struct Place {
    std::filesystem::path folder;
    std::vector<FilePtr> files;
  };
  std::filesystem::path root_;
  std::map<std::string, Place> places_;
};

}  // namespace lh
