// Where plugins are looked for, and which of them are loaded.

#include <algorithm>
#include <cstdlib>
#include <set>
#include <system_error>

#include "config/value.h"
#include "core/error.h"
#include "core/log.h"
#include "plugin/elf_note.h"
#include "plugin/loader.h"
#include "plugin/trial.h"

namespace lh {

namespace fs = std::filesystem;

std::vector<PluginDirectory> plugin_directories(const std::vector<fs::path>& from_command_line) {
  std::vector<PluginDirectory> dirs;
  dirs.reserve(from_command_line.size());
  for (const fs::path& path : from_command_line) dirs.push_back({path, true});
  if (const char* variable = std::getenv("LORA_HOST_PLUGIN_PATH")) {
    std::string list = variable;
    for (size_t at = 0; at <= list.size();) {
      size_t end = std::min(list.find(':', at), list.size());
      if (end > at) dirs.push_back({list.substr(at, end - at), true});
      at = end + 1;
    }
  }
  std::error_code error;
  fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    log_warning(
        "/proc/self/exe: {}: plugins beside the program are not found. Mount /proc, or name their folder with "
        "--plugin-dir",
        error.message());
    return dirs;
  }
  // Installed, and as built: `lib` is both unless the distribution's library folder has another name.
  const fs::path bin = executable.parent_path();
  const fs::path installed = (bin / LORA_LIBDIR_FROM_BINDIR / "lora-host").lexically_normal();
  const fs::path as_built = (bin / "../lib/lora-host").lexically_normal();
  dirs.push_back({installed, false});
  if (as_built != installed) dirs.push_back({as_built, false});
  return dirs;
}

bool is_plugin_path(const std::string& name) { return name.find('/') != std::string::npos || name.ends_with(".so"); }

fs::path plugin_file(const std::string& name) { return fs::absolute(schema::expand_home(name)).lexically_normal(); }

namespace {

// Its note is read and its code run in a child before any of it runs here.
std::unique_ptr<PluginFile> tried(const fs::path& file, const lh_host_api& api) {
  read_abi_note(file);
  return std::make_unique<PluginFile>(fs::absolute(file).lexically_normal(), try_plugin(file), api);
}

}  // namespace

Plugins load_plugins(const std::vector<PluginDirectory>& dirs, const std::vector<std::string>& asked_for,
                     const lh_host_api& api) {
  Plugins plugins;
  std::set<std::string> seen;
  for (const std::string& name : asked_for)
    if (is_plugin_path(name) && seen.insert(plugin_file(name).stem().string()).second) {
      auto plugin = tried(plugin_file(name), api);
      (void)**plugin;
      plugins.add(std::move(plugin));
    }
  for (const PluginDirectory& dir : dirs) {
    std::error_code error;
    std::vector<fs::path> files;
    for (fs::directory_iterator it(dir.path, error), end; !error && it != end; it.increment(error))
      if (it->path().extension() == ".so") files.push_back(it->path());
    if (error && dir.asked_for)
      lh::fail(Code::plugin, "{}: cannot list this plugin directory: {}", dir.path.string(), error.message());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      std::string name = file.stem().string();
      if (!seen.insert(name).second) continue;
      try {
        plugins.add(tried(file, api));
      } catch (const Error& failure) {
        bool named = std::find(asked_for.begin(), asked_for.end(), name) != asked_for.end();
        if (named || dir.asked_for || failure.code() != Code::plugin) throw;
        log_warning("plugin left out: {}", failure.what());
      }
    }
  }
  return plugins;
}

}  // namespace lh
