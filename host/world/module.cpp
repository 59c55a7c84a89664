#include "world/module.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/error.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// Beside the plugins, installed or as built.
fs::path path_of(const char* name) {
  std::error_code none;
  const fs::path bin = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const char* lib : {LORA_LIBDIR_FROM_BINDIR, "../lib"})
    if (const fs::path file = (bin / lib / "lora-host" / "world" / name).lexically_normal(); fs::exists(file, none))
      return file;
  fail(Code::resource, "the module lib/lora-host/world/{} is missing. Install lora-host anew", name);
}

}  // namespace

void* world_module(const char* file, const char* function) {
  const fs::path path = path_of(file);
  // MPI's own plugins look for its symbols among those of the whole process.
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) throw std::runtime_error(fmt::format("{}: {}", path.string(), ::dlerror()));
  void* found = ::dlsym(module, function);
  if (found == nullptr) throw std::runtime_error(fmt::format("{}: is of another lora-host", path.string()));
  return found;
}

}  // namespace lh
