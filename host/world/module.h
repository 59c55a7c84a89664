// Modules of lib/lora-host/world, which speak to libraries that the program itself does without.
#pragma once

namespace lh {

// A function of the module, which is loaded for good. Throws lh::Error(Code::resource) where the module is missing, and
// std::runtime_error where it, or a library that it needs, cannot be loaded.
void* world_module(const char* file, const char* function);

}  // namespace lh
