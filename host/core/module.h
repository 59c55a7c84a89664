// Modules below lib/lora-host, which speak to libraries that the program itself does without.
#pragma once

namespace lh {

// Do a module's libraries see each other's symbols only, or does the whole process?
enum class Symbols { own, shared };

// Of lib/lora-host, and the package that it comes with.
struct Module {
  const char *file, *package;
  Symbols symbols = Symbols::own;
};
// A function of the module, which is loaded for good. Throws lh::Error(Code::resource) where the module is missing, and
// std::runtime_error where it, or a library that it needs, cannot be loaded.
void* module_function(const Module& module, const char* function);

}  // namespace lh
