// Plugin loading. The order matters: note, version check, dlopen, entry check, floating-point check, init.
#include "plugin/loader.h"

#ifndef BOOST_DLL_USE_STD_FS
#define BOOST_DLL_USE_STD_FS
#endif

#include <boost/dll/shared_library.hpp>
#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "core/error.h"
#include "core/log.h"
#include "plugin/call.h"
#include "plugin/descriptors.h"
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

void check_version(const fs::path& path, int32_t major, int32_t minor_needed) {
  const bool old = major < LH_ABI_MAJOR || (major == LH_ABI_MAJOR && minor_needed < LH_ABI_OLDEST);
  const bool newer = major > LH_ABI_MAJOR || (major == LH_ABI_MAJOR && minor_needed > LH_ABI_MINOR);
  if (!old && !newer) return;
  const std::string served = LH_ABI_OLDEST == LH_ABI_MINOR
                                 ? fmt::format("{}.{}", LH_ABI_MAJOR, LH_ABI_MINOR)
                                 : fmt::format("{0}.{1} to {0}.{2}", LH_ABI_MAJOR, LH_ABI_OLDEST, LH_ABI_MINOR);
  lh::fail(Code::plugin, "{}: needs plugin ABI {}.{}, this host has {}; {}", path.string(), major, minor_needed, served,
           newer ? "update lora-host, or rebuild the plugin with this host's SDK"
                 : "rebuild the plugin with this host's SDK");
}

// The plugin's record. Fields up to the version are read first: they are the same in every version.
const lh_plugin_entry& find_entry(const fs::path& path, const boost::dll::shared_library& library) {
  if (!library.has(LH_PLUGIN_SYMBOL)) lh::fail(Code::plugin, "{}: does not export {}", path.string(), LH_PLUGIN_SYMBOL);
  const lh_plugin_entry& entry = library.get<const lh_plugin_entry>(LH_PLUGIN_SYMBOL);
  if (!LH_HAS(&entry, lh_plugin_entry, abi_minor_needed))
    lh::fail(Code::plugin, "{}: its {} has struct_size {}, too small to be one", path.string(), LH_PLUGIN_SYMBOL,
             entry.struct_size);
  check_version(path, entry.abi_major, entry.abi_minor_needed);
  if (!LH_HAS(&entry, lh_plugin_entry, factory))
    lh::fail(Code::plugin, "{}: its {} has struct_size {}, expected at least {}; rebuild it with this host's SDK",
             path.string(), LH_PLUGIN_SYMBOL, entry.struct_size,
             offsetof(lh_plugin_entry, factory) + sizeof(entry.factory));
  if (entry.id == nullptr || entry.version == nullptr || entry.license == nullptr || entry.init == nullptr ||
      entry.deinit == nullptr || entry.factory == nullptr)
    lh::fail(Code::plugin, "{}: its {} lacks a field", path.string(), LH_PLUGIN_SYMBOL);
  if (!is_plain(entry.id) || !is_plain(entry.version) || !is_plain(entry.license))
    lh::fail(Code::plugin, "{}: its {} has text with characters that cannot be printed", path.string(),
             LH_PLUGIN_SYMBOL);
  return entry;
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

// Loading, init and deinit are one at a time.
std::mutex& loading() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

// A library is opened once in a process, however many Plugins there are of it: the first one starts it, the last one
// stops it.
struct Plugin::Library {
  PluginHost host = {};
  const lh_plugin_entry* entry = nullptr;
  int64_t users = 0;

  static Library& of(const fs::path& path, const lh_plugin_entry& entry, const lh_host_api& api) {
    static auto* all = new std::deque<Library>;
    for (Library& library : *all)
      if (library.entry == &entry) return library;
    Library& library = all->emplace_back();
    library.entry = &entry;
    library.host.api = &api;
    library.host.id = entry.id;
    library.host.version = entry.version;
    library.host.path = path;
    return library;
  }
};

Plugin::Plugin(const fs::path& file, const lh_host_api& api) : path_(fs::absolute(file).lexically_normal()) {
  const AbiNote note = read_abi_note(path_);
  check_version(path_, note.major, note.minor_needed);
  const std::lock_guard lock(loading());
  const FloatingPointGuard floating_point;
  const boost::dll::shared_library& opened = open_library(path_);
  if (floating_point.restore())
    lh::fail(Code::plugin, "{}: loading it switched the processor to flush-to-zero; build it without -ffast-math",
             path_.string());
  const lh_plugin_entry& entry = find_entry(path_, opened);
  library_ = &Library::of(path_, entry, api);
  if (library_->users == 0) {
    Call call(library_->host, "init");
    const lh_status status = call.run([&] { return entry.init(&library_->host, path_.c_str()); });
    const bool changed = floating_point.restore();
    if (status != LH_OK)
      lh::fail(Code::plugin, "{}: plugin '{}' {} refused to start (status {}){}{}", path_.string(), entry.id,
               entry.version, status, call.reason().empty() ? "" : ": ", call.reason());
    library_->users = 1;
    if (changed) {
      stop();
      lh::fail(Code::plugin, "{}: its init switched the processor to flush-to-zero", path_.string());
    }
  } else {
    ++library_->users;
  }
  try {
    models_ = descriptors<lh_model>(LH_MODEL_FACTORY);
    optimizers_ = descriptors<lh_optimizer>(LH_OPTIMIZER_FACTORY);
    adapters_ = descriptors<lh_adapter>(LH_ADAPTER_FACTORY);
    samplers_ = descriptors<lh_sampler>(LH_SAMPLER_FACTORY);
    schedules_ = descriptors<lh_schedule>(LH_SCHEDULE_FACTORY);
  } catch (...) {
    stop();
    throw;
  }
}

Plugin::~Plugin() {
  const std::lock_guard lock(loading());
  stop();
}

void Plugin::stop() noexcept {
  if (--library_->users > 0) return;
  try {
    Call call(library_->host, "deinit");
    call.run([&] { library_->entry->deinit(); });
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
}

const Plugin& PluginFile::operator*() const {
  if (!plugin_) plugin_ = std::make_unique<Plugin>(path_, *api_);
  return *plugin_;
}

const lh_plugin_entry& Plugin::entry() const { return *library_->entry; }
const PluginHost& Plugin::host() const { return library_->host; }

template <typename T>
std::vector<const T*> Plugin::descriptors(const char* factory) const {
  constexpr uint32_t limit = 1024;
  std::vector<const T*> list;
  for (uint32_t index = 0;; ++index) {
    Call call(host(), "factory");
    const auto* descriptor = static_cast<const T*>(call.run([&] { return library_->entry->factory(factory, index); }));
    if (descriptor == nullptr) return list;
    if (index == limit) lh::fail(Code::plugin, "{}: {} does not end its list", path_.string(), factory);
    check_descriptor(*descriptor, path_, factory, index);
    list.push_back(descriptor);
  }
}

}  // namespace lh
