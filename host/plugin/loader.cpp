// Plugin loading. The order matters: note, version check, dlopen, entry check, floating-point check, init.
#include "plugin/loader.h"

#ifndef BOOST_DLL_USE_STD_FS
#define BOOST_DLL_USE_STD_FS
#endif
#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <set>
#include <system_error>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "core/error.h"
#include "plugin/elf_note.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// Numbers below the smallest normal float must stay what they are: libraries built with -ffast-math switch that off for
// the whole thread when they are loaded.
class FloatingPointGuard {
 public:
#if defined(__x86_64__)
  FloatingPointGuard() : before_(_mm_getcsr()) {}
  // True when flush-to-zero or denormals-are-zero changed; puts the old state back.
  bool restore() const {
    constexpr unsigned ftz_and_daz = 0x8040;
    bool changed = ((_mm_getcsr() ^ before_) & ftz_and_daz) != 0;
    _mm_setcsr(before_);
    return changed;
  }

 private:
  unsigned before_;
#else
  bool restore() const { return false; }
#endif
};

void check_version(const fs::path& path, uint16_t major, uint16_t minor_needed) {
  if (major == LH_ABI_MAJOR && minor_needed <= LH_ABI_MINOR) return;
  // A higher number means the plugin is the newer side.
  bool newer = major != LH_ABI_MAJOR ? major > LH_ABI_MAJOR : true;
  lh::fail(Code::plugin, "{}: needs plugin ABI {}.{}, this host has {}.{}; {}", path.string(), major, minor_needed,
           LH_ABI_MAJOR, LH_ABI_MINOR,
           newer ? "update lora-host, or rebuild the plugin with this host's SDK"
                 : "rebuild the plugin with this host's SDK");
}

// Has the struct a field that ends at `end`?
#define LH_REACHES(entry, type, field) ((entry).struct_size >= offsetof(type, field) + sizeof((entry).field))

const lh_plugin_entry* find_entry(const fs::path& path, const boost::dll::shared_library& library) {
  if (!library.has(LH_PLUGIN_SYMBOL)) lh::fail(Code::plugin, "{}: does not export {}", path.string(), LH_PLUGIN_SYMBOL);
  const lh_plugin_entry& entry = library.get<const lh_plugin_entry>(LH_PLUGIN_SYMBOL);
  if (!LH_REACHES(entry, lh_plugin_entry, abi_minor_needed))
    lh::fail(Code::plugin, "{}: its {} has struct_size {}, too small to be one", path.string(), LH_PLUGIN_SYMBOL,
             entry.struct_size);
  check_version(path, entry.abi_major, entry.abi_minor_needed);
  if (!LH_REACHES(entry, lh_plugin_entry, factory))
    lh::fail(Code::plugin, "{}: its {} has struct_size {}, expected at least {}; rebuild it with this host's SDK",
             path.string(), LH_PLUGIN_SYMBOL, entry.struct_size, sizeof(lh_plugin_entry));
  if (entry.id == nullptr || entry.version == nullptr || entry.license == nullptr || entry.init == nullptr ||
      entry.deinit == nullptr || entry.factory == nullptr)
    lh::fail(Code::plugin, "{}: its {} lacks a field", path.string(), LH_PLUGIN_SYMBOL);
  return &entry;
}

// Opens a library for good: threads and static objects of a plugin outlive any moment at which unloading would be safe.
const boost::dll::shared_library& open_library(const fs::path& path) {
  static auto* libraries = new std::deque<boost::dll::shared_library>;
  try {
    namespace mode = boost::dll::load_mode;
    return libraries->emplace_back(path, mode::rtld_now | mode::rtld_local);
  } catch (const std::exception& error) {  // its text holds the reason that dlopen gives
    lh::fail(Code::plugin, "{}: cannot be loaded: {}", path.string(), error.what());
  }
}

// Every open Plugin, the newest last. A library has one state however often it is opened, and that state belongs to the
// newest Plugin of it.
struct OpenPlugin {
  const Plugin* plugin;
  const lh_host_api* api;
};
std::vector<OpenPlugin>& open_plugins() {
  static auto* all = new std::vector<OpenPlugin>;
  return *all;
}

}  // namespace

Plugin::Plugin(const fs::path& file, const lh_host_api& api, const MakeHost& make_host) : path_(fs::absolute(file)) {
  AbiNote note = read_abi_note(path_);
  check_version(path_, note.major, note.minor_needed);

  FloatingPointGuard floating_point;
  const boost::dll::shared_library& library = open_library(path_);
  if (floating_point.restore())
    lh::fail(Code::plugin, "{}: loading it switched the processor to flush-to-zero; build it without -ffast-math",
             path_.string());
  entry_ = find_entry(path_, library);
  host_ = make_host(path_.string());
  lh_status status = entry_->init(host_, &api, path_.c_str());
  bool changed = floating_point.restore();
  if (status != LH_OK)
    lh::fail(Code::plugin, "{}: plugin '{}' {} refused to start (status {})", path_.string(), entry_->id,
             entry_->version, status);
  if (changed) {
    entry_->deinit();
    lh::fail(Code::plugin, "{}: its init switched the processor to flush-to-zero", path_.string());
  }
  open_plugins().push_back({this, &api});
}

Plugin::~Plugin() {
  std::vector<OpenPlugin>& open = open_plugins();
  std::erase_if(open, [&](const OpenPlugin& other) { return other.plugin == this; });
  entry_->deinit();
  const auto heir =
      std::find_if(open.rbegin(), open.rend(), [&](const OpenPlugin& other) { return other.plugin->entry_ == entry_; });
  if (heir != open.rend()) (void)entry_->init(heir->plugin->host_, heir->api, heir->plugin->path_.c_str());
}

template <typename T>
std::vector<const T*> Plugin::descriptors(const char* factory) const {
  std::vector<const T*> list;
  for (uint32_t index = 0;; ++index) {
    const auto* descriptor = static_cast<const T*>(entry_->factory(factory, index));
    if (descriptor == nullptr) return list;
    if (index == 1024) lh::fail(Code::plugin, "{}: {} does not end its list", path_.string(), factory);
    if (!LH_REACHES(*descriptor, T, id) || descriptor->id == nullptr)
      lh::fail(Code::plugin, "{}: {} number {} has no id", path_.string(), factory, index);
    // The ABI is 0.x: no descriptor is older than this host's.
    if (descriptor->struct_size < sizeof(T))
      lh::fail(Code::plugin, "{}: {} '{}' has struct_size {}, expected {}; rebuild the plugin with this host's SDK",
               path_.string(), factory, descriptor->id, descriptor->struct_size, sizeof(T));
    list.push_back(descriptor);
  }
}

std::vector<const lh_model*> Plugin::models() const { return descriptors<lh_model>(LH_MODEL_FACTORY); }
std::vector<const lh_optimizer*> Plugin::optimizers() const { return descriptors<lh_optimizer>(LH_OPTIMIZER_FACTORY); }
std::vector<const lh_sampler*> Plugin::samplers() const { return descriptors<lh_sampler>(LH_SAMPLER_FACTORY); }

std::vector<PluginDirectory> plugin_directories(const std::vector<fs::path>& from_command_line) {
  std::vector<PluginDirectory> dirs;
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
  if (error) return dirs;
  // Installed, and as built: `lib` is both unless the distribution's library folder has another name.
  const fs::path bin = executable.parent_path();
  const fs::path installed = (bin / LORA_LIBDIR_FROM_BINDIR / "lora-host").lexically_normal();
  const fs::path as_built = (bin / "../lib/lora-host").lexically_normal();
  dirs.push_back({installed, false});
  if (as_built != installed) dirs.push_back({as_built, false});
  return dirs;
}

Plugins load_plugins(const std::vector<PluginDirectory>& dirs, const lh_host_api& api, const MakeHost& make_host,
                     const std::vector<std::string>& asked_for) {
  Plugins plugins;
  std::set<std::string> seen;
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
        plugins.add(std::make_unique<Plugin>(file, api, make_host));
      } catch (const Error& failure) {
        bool named = std::find(asked_for.begin(), asked_for.end(), name) != asked_for.end();
        if (named || dir.asked_for || failure.code() != Code::plugin) throw;
        api.log(nullptr, LH_LOG_WARNING, fmt::format("plugin left out: {}", failure.what()).c_str());
      }
    }
  }
  return plugins;
}

}  // namespace lh
