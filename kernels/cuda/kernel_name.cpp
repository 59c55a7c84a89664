#include "cuda/kernel_name.h"

#include <cuda_runtime.h>
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace lk::cuda {

std::string kernel_name(const void* kernel) {
  const char* symbol = nullptr;
  if (cudaFuncGetName(&symbol, kernel) != cudaSuccess || symbol == nullptr) {
    cudaGetLastError();
    return "?";
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                        std::free);
  std::string name = readable != nullptr ? readable.get() : symbol;
  for (const std::string_view space : {"lk::cuda::", "(anonymous namespace)::"}) {
    for (size_t at = name.find(space); at != std::string::npos; at = name.find(space, at)) name.erase(at, space.size());
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  int depth = 0;  // of template arguments, which may have parentheses too
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace lk::cuda
