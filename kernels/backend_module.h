// A backend with libraries of its own is a module, lora-kernels/<name>.so beside this library: who does not ask for it
// neither loads them nor needs them on the machine.
#pragma once

#include <memory>
#include <string>

#include "backend.h"

namespace lk {

// What a module has under the name `lk_backend_module`. The two are C++ of one build: a module of another is refused.
struct BackendModule {
  const char* interface;  // LK_BACKEND_INTERFACE of its build: a digest of what both include
  std::unique_ptr<Backend> (*make)(const lk_context_params& params);
};

std::string backend_module_path(const char* name);
bool backend_module_there(const char* name);
// Opened once, for as long as the process runs. Throws LK_E_UNSUPPORTED where there is none, LK_E_LIBRARY where it, or
// what it needs, cannot be loaded.
std::unique_ptr<Backend> make_backend_of_module(const char* name, const lk_context_params& params);

}  // namespace lk
