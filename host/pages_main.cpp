// Writes the manual page and the completions of shells, when lora-host is built: lora_host_pages FOLDER PLUGIN_FOLDER.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <fstream>

#include "cli/pages.h"
#include "cli/plugin_flags.h"
#include "plugin/registry.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: lora_host_pages FOLDER PLUGIN_FOLDER\n");
    return 2;
  }
  try {
    const std::filesystem::path folder = argv[1];
    const std::vector<lh::PluginKeys> plugins = lh::Registry({argv[2]}, {}).model_keys();
    const auto write = [&](const char* name, const std::string& text) {
      std::ofstream out(folder / name, std::ios::binary);
      out << text;
      out.close();
      if (!out) throw std::runtime_error(fmt::format("{}: cannot be written", (folder / name).string()));
    };
    const std::string of_plugins =
        lh::plugin_flags_help(plugins, lh::plugin_flags(plugins, [](const std::string&) { return false; }));
    write("lora-host.1", lh::man_page(lh::command_table({}), of_plugins));
    const auto commands = lh::command_table(plugins);
    write("lora-host.bash", lh::bash_completion(commands));
    write("_lora-host", lh::zsh_completion(commands));
    write("lora-host.fish", lh::fish_completion(commands));
  } catch (const std::exception& error) {
    fmt::print(stderr, "lora_host_pages: {}\n", error.what());
    return 1;
  }
  return 0;
}
