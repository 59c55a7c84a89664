#include "io/repository.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "core/lower.h"

namespace lh {
namespace {

// As the sites of models have them: one slash, and no ending that a file has.
bool is_repository(std::string_view name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  const auto begins = [](std::string_view part) {
    return !part.empty() && std::isalnum(static_cast<unsigned char>(part.front())) != 0;
  };
  const size_t slash = name.find('/');
  static constexpr std::array<std::string_view, 7> files{".safetensors", ".json", ".gguf", ".ckpt",
                                                         ".bin",         ".pt",   ".so"};
  return slash != name.npos && std::ranges::all_of(name, allowed) && name.find('/', slash + 1) == name.npos &&
         begins(name.substr(0, slash)) && begins(name.substr(slash + 1)) &&
         std::ranges::none_of(files, [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

Published read_published(const yaml::Strict& in, const yaml::Node& checkpoint) {
  Published all;
  if (const yaml::Node* published = checkpoint.find("published"))
    for (const auto& [name, what] : in.entries(*published, "published"))
      all[name.text] = in.text(what, "published." + name.text);
  return all;
}

std::string repository_hint(const std::filesystem::path& path, const Published& published) {
  const std::string name = path.string();
  if (!is_repository(name)) return {};
  const auto known = std::ranges::find_if(published, [&](const auto& p) { return lower(p.first) == lower(name); });
  return fmt::format(
      ". It looks like the name of a repository, and nothing is fetched here: download what is needed, for example "
      "with\n"
      "  hf download {} --local-dir models/{}\nand give the path of the file or folder. {}docs/getting-models.md has "
      "more",
      name, path.filename().string(),
      known == published.end() ? "" : fmt::format("What is needed of this one: {}. ", known->second));
}

}  // namespace lh
