#include "core/module.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/error.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// Beside the plugins, installed or as built.
fs::path path_of(const Module& module) {
  std::error_code none;
  const fs::path bin = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const char* lib : {LORA_LIBDIR_FROM_BINDIR, "../lib"})
    if (const fs::path file = (bin / lib / "lora-host" / module.file).lexically_normal(); fs::exists(file, none))
      return file;
  fail(Code::resource, "the module lib/lora-host/{} is missing. Install the package {}, or all of lora-host anew",
       module.file, module.package);
}

}  // namespace

void* module_function(const Module& module, const char* function) {
  const fs::path path = path_of(module);
  void* opened = ::dlopen(path.c_str(), RTLD_NOW | (module.symbols == Symbols::shared ? RTLD_GLOBAL : RTLD_LOCAL));
  if (opened == nullptr) throw std::runtime_error(fmt::format("{}: {}", path.string(), ::dlerror()));
  void* found = ::dlsym(opened, function);
  if (found == nullptr) throw std::runtime_error(fmt::format("{}: is of another lora-host", path.string()));
  return found;
}

}  // namespace lh
