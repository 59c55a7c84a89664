// Loads plugins: checks their ABI before any of their code runs, then keeps them for the life of the process.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lora_host/lora_host.h"

namespace lh {

// Makes the host handle that one plugin gets; the caller owns it and keeps it as long as the plugin.
using MakeHost = std::function<lh_host*(const std::string& plugin_path)>;

class Plugin {
 public:
  // Throws lh::Error(Code::plugin) when the file is no plugin for this host or its init fails.
  Plugin(const std::filesystem::path& file, const lh_host_api& api, const MakeHost& make_host);
  ~Plugin();  // calls deinit; the library stays loaded
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const lh_plugin_entry& entry() const { return *entry_; }
  lh_host* host() const { return host_; }
  std::vector<const lh_model*> models() const;
  std::vector<const lh_optimizer*> optimizers() const;
  std::vector<const lh_sampler*> samplers() const;

 private:
  template <typename T>
  std::vector<const T*> descriptors(const char* factory) const;

  std::filesystem::path path_;
  const lh_plugin_entry* entry_ = nullptr;
  lh_host* host_ = nullptr;
};

// Plugins in order of loading; the last one is deinitialised first.
class Plugins {
 public:
  Plugins() = default;
  Plugins(Plugins&&) noexcept = default;
  Plugins& operator=(Plugins&&) = delete;
  ~Plugins() {
    while (!list_.empty()) list_.pop_back();
  }
  void add(std::unique_ptr<Plugin> plugin) { list_.push_back(std::move(plugin)); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  size_t size() const { return list_.size(); }
  const Plugin& operator[](size_t index) const { return *list_[index]; }

 private:
  std::vector<std::unique_ptr<Plugin>> list_;
};

struct PluginDirectory {
  std::filesystem::path path;
  bool asked_for = false;  // named by the user: it must exist
};

// Where plugins are looked for: --plugin-dir, $LORA_HOST_PLUGIN_PATH (colon-separated), <folder of the
// executable>/../lib/ lora-host (also under the distribution's name of the library folder, such as
// lib/x86_64-linux-gnu).
std::vector<PluginDirectory> plugin_directories(const std::vector<std::filesystem::path>& from_command_line);

// Loads every *.so of the directories, by name; a name seen before is skipped, so earlier directories win. A plugin
// that cannot be loaded is an error when the user named it (`asked_for`) or its directory; in the default directory it
// is a warning (api.log with host NULL) and left out.
Plugins load_plugins(const std::vector<PluginDirectory>& dirs, const lh_host_api& api, const MakeHost& make_host,
                     const std::vector<std::string>& asked_for = {});

}  // namespace lh
