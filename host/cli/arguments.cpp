// From argv to Arguments: the command that is meant, CLI11's parser, and what it refuses in words.
#include "cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "cli/define.h"
#include "config/nearest.h"
#include "core/error.h"
#include "core/lower.h"

namespace lh {
namespace {

constexpr std::string_view commands[] = {
    "train",  "init",  "check",   "watch",   "ctl",    "sample",          "plugins", "inspect",
    "verify", "merge", "convert", "extract", "resize", "make-checkpoint", "bench",   "plan"};

constexpr std::string_view plugin_dir = "--plugin-dir";

// Where the command stands, or should: after the --plugin-dir flags that may come first.
size_t place_of_command(const std::vector<std::string>& args) {
  size_t at = 0;
  while (at < args.size() && (args[at] == plugin_dir || args[at].starts_with("--plugin-dir=")))
    at += args[at] == plugin_dir ? 2 : 1;
  return at;
}

// A file that is there, named as configurations are.
bool is_configuration(const std::string& word) {
  const std::string end = lower(std::filesystem::path(word).extension().string());
  std::error_code none;
  return (end == ".yaml" || end == ".yml" || end == ".toml" || end == ".json") &&
         std::filesystem::is_regular_file(word, none);
}

// The command line with the command spelled out: "lora-host --config x" is "lora-host train --config x".
std::vector<std::string> with_command(int argc, const char* const* argv) {
  std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  const size_t at = place_of_command(args);
  if (at >= args.size()) {
    if (args.empty()) args.push_back("--help");
    return args;
  }
  if (const std::string& word = args[at]; !word.starts_with('-')) {
    if (std::ranges::find(commands, word) != std::end(commands)) return args;
    if (is_configuration(word))
      fail(Code::config, "unknown command {}. To train what it describes: --config {}", word, word);
    const std::string near = nearest_of(word, commands);
    fail(Code::config, "unknown command {}. {}", word,
         near.empty() ? fmt::format("Known: {}", fmt::join(commands, ", ")) : fmt::format("Did you mean {}?", near));
  } else if (word != "--help" && word != "-h" && word != "--version") {
    args.insert(args.begin() + static_cast<std::ptrdiff_t>(at), "train");
  }
  return args;
}

// The known flag nearest to an unknown one, as " Did you mean --x?".
std::string suggestion(const std::string& word, const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames()[0]);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = nearest_of(word.substr(0, word.find('=')), views);
  return near.empty() ? "" : fmt::format(" Did you mean {}?", near);
}

}  // namespace

FirstLook first_look(int argc, const char* const* argv) {
  const std::vector<std::string> args = with_command(argc, argv);
  const auto values = [&](const std::string& flag) {
    std::vector<std::string> all;
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].starts_with(flag + "=")) all.push_back(args[i].substr(flag.size() + 1));
      if (args[i] == flag && i + 1 < args.size()) all.push_back(args[++i]);
    }
    return all;
  };
  const auto value = [&](const std::string& flag) {
    const std::vector<std::string> all = values(flag);
    return all.empty() ? "" : all.back();
  };
  const size_t at = std::min(place_of_command(args), args.size() - 1);
  std::string config = value(args[at] == "init" ? "--from" : "--config");
  // `check` takes the file as a word.
  std::error_code error;
  for (size_t i = at + 1; args[at] == "check" && config.empty() && i < args.size(); ++i)
    if (!args[i].starts_with('-') && std::filesystem::is_regular_file(args[i], error)) config = args[i];
  return {.command = args[at],
          .config_file = config,
          .plugin = value("--plugin"),
          .model = value("--model"),
          .plugin_dirs = values(std::string(plugin_dir))};
}

Arguments parse_arguments(int argc, const char* const* argv, const std::vector<PluginKeys>& plugins) {
  Arguments raw;
  CLI::App app;
  const FirstLook look = first_look(argc, argv);
  define(app, plugins, look.plugin.empty() ? look.model : look.plugin, raw);
  std::vector<std::string> args = with_command(argc, argv);
  std::ranges::reverse(args);  // as CLI11 wants them
  const auto command = [&]() -> CLI::App* {
    const auto chosen = app.get_subcommands();
    return chosen.empty() ? &app : chosen[0];
  };
  try {
    app.parse(args);
  } catch (const CLI::CallForHelp&) {
    raw.text = app.help();
    return raw;
  } catch (const CLI::ExtrasError&) {
    const std::string word = app.remaining(true).empty() ? "" : app.remaining(true)[0];
    fail(Code::config, "unknown argument {}.{} See lora-host {} --help", word,
         is_configuration(word) ? fmt::format(" Did you mean --config {}?", word) : suggestion(word, *command()),
         command() == &app ? "" : command()->get_name());
  } catch (const CLI::ParseError& error) {
    fail(Code::config, "{}. See lora-host {} --help", error.what(), command() == &app ? "" : command()->get_name());
  }
  if (command() == &app)
    raw.text = app.help();
  else
    raw.command = command()->get_name();
  raw.resume_given = raw.command == "train" && command()->count("--resume") > 0;
  return raw;
}

}  // namespace lh
