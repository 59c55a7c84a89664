// Looks for a tokenizer's files in the checkpoint, under a key of the user, beside the plugin and in share.
#include "data/tokenizer_files.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <system_error>

#include "core/error.h"
#include "core/log.h"

namespace lh {

namespace fs = std::filesystem;

namespace {

const std::map<std::string, std::vector<TokenizerFileSet>>& file_sets() {
  static const std::map<std::string, std::vector<TokenizerFileSet>> sets = {
      {"bpe",
       {{{"tokenizer.json"}, {}}, {{"vocab.json", "merges.txt"}, {"tokenizer_config.json", "added_tokens.json"}}}},
      {"sentencepiece", {{{"spiece.model"}, {}}, {{"tokenizer.model"}, {}}, {{"sentencepiece.bpe.model"}, {}}}},
  };
  return sets;
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// The files of an algorithm in words: "tokenizer.json, or vocab.json with merges.txt".
std::string wanted(const std::string& algorithm) {
  std::vector<std::string> sets;
  for (const TokenizerFileSet& set : file_sets().at(algorithm))
    sets.push_back(fmt::format("{}", fmt::join(set.names, " with ")));
  return fmt::format("{}", fmt::join(sets, ", or "));
}

// Looks into one place after the other and remembers what was not there.
class Search {
 public:
  explicit Search(const std::string& algorithm) : algorithm_(algorithm) {}

  // The files of `place`, a folder or (of the user) the file itself; empty: it has none that the algorithm reads.
  std::vector<fs::path> look(const fs::path& place, const std::string& whose) {
    if (is_file(place)) return {place};
    if (!is_folder(place)) {
      tried_ += fmt::format("\n  {} ({}): not there", place.string(), whose);
      return {};
    }
    for (const TokenizerFileSet& set : tokenizer_file_sets(algorithm_)) {
      std::vector<fs::path> found;
      for (const std::string& name : set.names) {
        if (is_file(place / name)) {
          found.push_back(place / name);
        } else {
          tried_ += fmt::format("\n  {} ({}): not there", (place / name).string(), whose);
        }
      }
      if (found.size() < set.names.size()) continue;
      for (const std::string& name : set.extra)
        if (is_file(place / name)) found.push_back(place / name);
      return found;
    }
    return {};
  }

  [[noreturn]] void give_up(const std::string& fix) const {
    fail(Code::data, "tokenizer ({}): no files that fit were found ({}){}{}", algorithm_, fix,
         tried_.empty() ? "" : "; tried:", tried_);
  }

 private:
  const std::string& algorithm_;
  std::string tried_;
};

}  // namespace

const std::vector<TokenizerFileSet>& tokenizer_file_sets(const std::string& algorithm) {
  return file_sets().at(algorithm);
}

std::vector<std::string> tokenizer_algorithms() {
  std::vector<std::string> names;
  for (const auto& [name, sets] : file_sets()) names.push_back(name);
  return names;
}

std::vector<fs::path> bundled_tokenizer_folders(const std::string& name, const fs::path& plugin) {
  std::vector<fs::path> folders;
  if (!plugin.empty()) folders.push_back(plugin.parent_path() / plugin.stem() / "tokenizers" / name);
  if (const char* named = std::getenv("LORA_HOST_DATA"); named != nullptr && *named != 0) {
    folders.push_back(fs::path(named) / "tokenizers" / name);
    return folders;
  }
  std::error_code error;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !program.empty()) {
    const fs::path data = (program.parent_path() / LORA_DATADIR_FROM_BINDIR / "lora-host").lexically_normal();
    folders.push_back(data / "tokenizers" / name);
  }
#ifdef LORA_SOURCE_DATA
  folders.push_back(fs::path(LORA_SOURCE_DATA) / "tokenizers" / name);
#endif
  return folders;
}

fs::path bundled_tokenizer_folder(const std::string& name, const fs::path& plugin) {
  std::string tried;
  for (const fs::path& folder : bundled_tokenizer_folders(name, plugin)) {
    if (is_folder(folder)) return folder;
    tried += "\n  " + folder.string();
  }
  const char* named = std::getenv("LORA_HOST_DATA");
  fail(Code::data, "tokenizer: there is no folder \"{}\" ({}); tried:{}", name,
       named != nullptr && *named != 0 ? "LORA_HOST_DATA is set: correct it or unset it"
                                       : "set LORA_HOST_DATA to the folder that holds \"tokenizers\"",
       tried);
}

std::vector<fs::path> find_tokenizer_files(const std::string& algorithm, const TokenizerSpec::Files& files,
                                           const TokenizerPlaces& places) {
  Search search(algorithm);
  const auto taken = [&](const std::vector<fs::path>& found) {
    std::vector<std::string> names;
    names.reserve(found.size());
    for (const fs::path& file : found) names.push_back(file.filename());
    log_info("tokenizer: {} of {}", fmt::join(names, ", "), found.front().parent_path().string());
    return found;
  };
  if (!places.user.empty()) {
    const std::vector<fs::path> found = search.look(places.user, "model." + files.config);
    if (found.empty()) search.give_up("correct the path, or leave it out");
    return taken(found);
  }
  if (!files.folder.empty() && is_folder(places.checkpoint)) {
    const fs::path folder = places.checkpoint / files.folder;
    const std::vector<fs::path> found = search.look(folder, "of the checkpoint");
    if (!found.empty()) return taken(found);
    if (is_folder(folder) && !files.bundled.empty())
      log_warning("tokenizer: {} holds no files of kind {}: those that ship with the program are used instead",
                  folder.string(), algorithm);
  }
  if (!files.bundled.empty()) {
    // The first folder that exists decides: half an installation is an error and no reason to look elsewhere.
    for (const fs::path& folder : bundled_tokenizer_folders(files.bundled, places.plugin)) {
      const std::vector<fs::path> found = search.look(folder, "bundled");
      if (!found.empty()) return taken(found);
      if (is_folder(folder)) break;
    }
  }
  search.give_up(files.config.empty()
                     ? "install them anew; LORA_HOST_DATA may name the folder that holds \"tokenizers\""
                     : fmt::format("give model.{}, a folder with {}", files.config, wanted(algorithm)));
}

}  // namespace lh
