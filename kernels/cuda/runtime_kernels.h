// Kernels that are compiled while the program runs (NVRTC), for the device in use. Each source is compiled once.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <string>

namespace lk::cuda {

class RuntimeKernels {
 public:
  explicit RuntimeKernels(int capability) : capability_(capability) {}  // 90 = 9.0
  RuntimeKernels(const RuntimeKernels&) = delete;
  RuntimeKernels& operator=(const RuntimeKernels&) = delete;
  ~RuntimeKernels();
  // The kernel `name` of `source`, which may include the device code of this library (CMakeLists.txt lists it).
  cudaKernel_t kernel(const std::string& source, const char* name);

 private:
  int capability_;
  std::map<std::string, cudaLibrary_t> libraries_;  // by source
};

}  // namespace lk::cuda
