// Where the files of tokenizers lie.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/tokenizer_spec.h"

namespace lh {

// What is known of a run; a path that does not apply stays empty.
struct TokenizerPlaces {
  std::filesystem::path user;        // given for the configuration key of the specification
  std::filesystem::path checkpoint;  // the model's diffusers directory (or its file, which holds no tokenizer)
  std::filesystem::path plugin;      // the plugin's library
};

// Files of an algorithm that go together; `extra` ones may be missing.
struct TokenizerFileSet {
  std::vector<std::string> names, extra;
};
const std::vector<TokenizerFileSet>& tokenizer_file_sets(const std::string& algorithm);
std::vector<std::string> tokenizer_algorithms();

// Folders that ship files under this name, best first: `<plugin without .so>/tokenizers/<name>`, then
// $LORA_HOST_DATA/tokenizers/<name> when that is set, or else the installed <exe>/../share/lora-host/tokenizers/<name>
// and the source tree's. They need not exist.
std::vector<std::filesystem::path> bundled_tokenizer_folders(const std::string& name,
                                                             const std::filesystem::path& plugin);
// The first of them that exists; throws lh::Error(Code::data) that lists them.
std::filesystem::path bundled_tokenizer_folder(const std::string& name, const std::filesystem::path& plugin);

// The files to read. The user's path decides where it is given; else the checkpoint's folder, if it has what the
// algorithm reads; else the bundled folder. Throws lh::Error(Code::data) that lists what was tried.
std::vector<std::filesystem::path> find_tokenizer_files(const std::string& algorithm, const TokenizerSpec::Files& files,
                                                        const TokenizerPlaces& places);

}  // namespace lh
