#include "backend_module.h"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

namespace lk {
namespace {

const BackendModule& open(const char* name) {
  const std::string path = backend_module_path(name);
  if (!backend_module_there(name))
    throw Error(LK_E_UNSUPPORTED, "there is no " + std::string(name) + " backend here: " + path +
                                      " is not there. Install it, or build with what it needs");
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(LK_E_LIBRARY, "the " + std::string(name) + " backend cannot be loaded: " + ::dlerror() +
                                  ". Install the library that is missing, or name its folder in LD_LIBRARY_PATH");
  const auto* const module = static_cast<const BackendModule*>(::dlsym(library, "lk_backend_module"));
  if (module == nullptr || std::strcmp(module->interface, LK_BACKEND_INTERFACE) != 0) {
    const std::string found = module == nullptr ? "none" : module->interface;
    throw Error(LK_E_LIBRARY, path + ": expected a backend of this build (" LK_BACKEND_INTERFACE "), found " + found +
                                  ". Install both from the same build");
  }
  return *module;
}

const BackendModule& opened(const char* name) {
  static std::mutex mutex;
  static std::map<std::string, const BackendModule*> modules;
  const std::lock_guard lock(mutex);
  const BackendModule*& module = modules[name];
  if (module == nullptr) module = &open(name);
  return *module;
}

}  // namespace

std::string backend_module_path(const char* name) {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&lk_version), &here) == 0) here.dli_fname = "";
  std::error_code none;
  const std::filesystem::path library = std::filesystem::weakly_canonical(here.dli_fname, none);
  return (library.parent_path() / "lora-kernels" / name).string() + ".so";
}

bool backend_module_there(const char* name) {
  std::error_code none;
  return std::filesystem::exists(backend_module_path(name), none);
}

std::unique_ptr<Backend> make_backend_of_module(const char* name, const lk_context_params& params) {
  return opened(name).make(params);
}

}  // namespace lk
