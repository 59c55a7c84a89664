#include "cli/flags.h"

#include <fmt/ranges.h>

#include "config/schema.h"
#include "config/value.h"
#include "core/error.h"
#include "core/utf8.h"

namespace lh {
namespace {

// The values of a flag as the node a file would have: one value is a scalar, more are a list. Commas separate integers
// ("--resolution 512,768"); in text they are part of it.
yaml::Node to_node(const schema::Key& key, const std::vector<std::string>& values) {
  Config config;
  DatasetConfig dataset;
  const auto field = key.field(config, dataset);
  yaml::Node list{.kind = yaml::Kind::list};
  for (const std::string& value : values) {
    std::string_view rest = value;
    while (std::holds_alternative<schema::Integers*>(field) && rest.find(',') != rest.npos) {
      list.items.push_back({.kind = yaml::Kind::scalar, .text = std::string(rest.substr(0, rest.find(',')))});
      rest.remove_prefix(rest.find(',') + 1);
    }
    list.items.push_back({.kind = yaml::Kind::scalar, .text = std::string(rest)});
  }
  const bool many = std::holds_alternative<schema::Integers*>(field) || std::holds_alternative<schema::Texts*>(field) ||
                    std::holds_alternative<schema::Samples*>(field);
  return many ? list : list.items.back();
}

// A file is checked as a whole; names of files may be bytes of any kind.
std::string problem_of_text(const schema::Key& key, const std::vector<std::string>& values) {
  Config config;
  DatasetConfig dataset;
  const auto field = key.field(config, dataset);
  if (std::holds_alternative<std::filesystem::path*>(field) || std::holds_alternative<ImagePaths*>(field)) return "";
  for (const std::string& value : values)
    if (const auto bad = invalid_utf8(value))
      return fmt::format("byte {} (0x{:02x}) is not valid UTF-8: write it in another way", *bad,
                         static_cast<unsigned char>(value[*bad]));
  return "";
}

}  // namespace

void apply_flags(std::span<const ConfigFlag> flags, const FlagValues& values, Config& config) {
  std::vector<std::string> lines;
  for (const ConfigFlag& flag : flags) {
    const auto given = values.find(flag.flag);
    if (given == values.end() || given->second.empty()) continue;
    const schema::Key& key = *schema::find(flag.key);
    if (const std::string wrong = problem_of_text(key, given->second); !wrong.empty()) {
      lines.push_back(fmt::format("{}: {}", flag.flag, wrong));
      continue;
    }
    const yaml::Node node = to_node(key, given->second);
    std::vector<yaml::Problem> problems;
    DatasetConfig unused;
    if (!flag.key.starts_with("datasets[]"))
      schema::assign(key, key.field(config, unused), node, problems);
    else
      for (DatasetConfig& dataset : config.datasets)
        if (problems.empty()) schema::assign(key, key.field(config, dataset), node, problems);
    for (const auto& problem : problems) lines.push_back(fmt::format("{}: {}", flag.flag, problem.text));
  }
  if (!lines.empty()) throw Error(Code::config, fmt::format("{}", fmt::join(lines, "\n")));
}

}  // namespace lh
