// Loads plugins: checks their ABI before any of their code runs, then keeps them for the life of the process.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "plugin/offers.h"
#include "plugin/services.h"

namespace lh {

// A plugin in use. There may be several of one library, which is started once.
class Plugin {
 public:
  // Throws lh::Error(Code::plugin) when the file is no plugin for this host, its init fails or what it offers lacks a
  // field. api: the table that its handles begin with.
  explicit Plugin(const std::filesystem::path& file, const lh_host_api& api = host_api());
  ~Plugin();  // the last one of a library calls deinit; the library stays loaded
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const lh_plugin_entry& entry() const;
  const PluginHost& host() const;  // lives as long as the process
  const std::vector<const lh_model*>& models() const { return models_; }
  const std::vector<const lh_optimizer*>& optimizers() const { return optimizers_; }
  const std::vector<const lh_adapter*>& adapters() const { return adapters_; }
  const std::vector<const lh_sampler*>& samplers() const { return samplers_; }
  const std::vector<const lh_schedule*>& schedules() const { return schedules_; }

 private:
  template <typename T>
  std::vector<const T*> descriptors(const char* factory) const;
  void stop() noexcept;

  struct Library;
  std::filesystem::path path_;
  Library* library_ = nullptr;
  std::vector<const lh_model*> models_;
  std::vector<const lh_optimizer*> optimizers_;
  std::vector<const lh_adapter*> adapters_;
  std::vector<const lh_sampler*> samplers_;
  std::vector<const lh_schedule*> schedules_;
};

// A plugin that was tried, and is loaded where it is first looked into.
class PluginFile {
 public:
  PluginFile(std::filesystem::path path, PluginOffers offers, const lh_host_api& api)
      : path_(std::move(path)), offers_(std::move(offers)), api_(&api) {}
  const std::filesystem::path& path() const { return path_; }  // absolute
  const PluginOffers& offers() const { return offers_; }
  bool loaded() const { return plugin_ != nullptr; }
  const Plugin& operator*() const;  // loads it; throws as Plugin does
  const Plugin* operator->() const { return &**this; }

 private:
  std::filesystem::path path_;
  PluginOffers offers_;
  const lh_host_api* api_;
  mutable std::unique_ptr<Plugin> plugin_;
};

// In the order in which they were found; the last one is stopped first.
class Plugins {
 public:
  Plugins() = default;
  Plugins(Plugins&&) noexcept = default;
  Plugins& operator=(Plugins&&) = delete;
  ~Plugins() {
    while (!list_.empty()) list_.pop_back();
  }
  void add(std::unique_ptr<PluginFile> plugin) { list_.push_back(std::move(plugin)); }
  auto begin() const { return Iterator(list_.begin()); }
  auto end() const { return Iterator(list_.end()); }
  size_t size() const { return list_.size(); }
  const Plugin& operator[](size_t index) const { return **list_[index]; }

 private:
  using List = std::vector<std::unique_ptr<PluginFile>>;
  struct Iterator : List::const_iterator {
    explicit Iterator(List::const_iterator at) : List::const_iterator(at) {}
    const PluginFile& operator*() const { return *List::const_iterator::operator*(); }
  };
  List list_;
};

struct PluginDirectory {
  std::filesystem::path path;
  bool asked_for = false;  // named by the user: it must exist
};

// Where plugins are looked for: --plugin-dir, $LORA_HOST_PLUGIN_PATH (colon-separated), <folder of the
// executable>/../lib/lora-host (also under the distribution's name of the library folder, such as
// lib/x86_64-linux-gnu).
std::vector<PluginDirectory> plugin_directories(const std::vector<std::filesystem::path>& from_command_line);

// Does the user's name of a plugin mean a file? It has a slash or ends with .so.
bool is_plugin_path(const std::string& name);
std::filesystem::path plugin_file(const std::string& name);  // absolute, with ~ as the user's home

// The files among `asked_for`, which are loaded, then every *.so of the directories, by name, which are tried and
// loaded where they are needed; a name seen before is skipped, so what comes first wins. A plugin that fails is an
// error when the user named it (`asked_for`) or its directory; in the default directory it is a warning and left out.
Plugins load_plugins(const std::vector<PluginDirectory>& dirs, const std::vector<std::string>& asked_for = {},
                     const lh_host_api& api = host_api());

}  // namespace lh
