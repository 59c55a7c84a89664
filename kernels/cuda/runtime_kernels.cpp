#include "cuda/runtime_kernels.h"

#include <nvrtc.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/cuda.h"
#include "runtime_headers.h"  // made by CMake

namespace lk::cuda {

namespace {

void check(nvrtcResult status, const char* what) {
  if (status != NVRTC_SUCCESS) throw Error(LK_E_LIBRARY, std::string(what) + ": NVRTC: " + nvrtcGetErrorString(status));
}

class Compilation {
 public:
  explicit Compilation(const std::string& source) {
    std::vector<const char*> names, texts;
    for (const auto& [name, text] : runtime_headers) {
      names.push_back(name);
      texts.push_back(text);
    }
    check(nvrtcCreateProgram(&program_, source.c_str(), "pointwise.cu", static_cast<int>(names.size()), texts.data(),
                             names.data()),
          "a kernel's source");
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;
  ~Compilation() { nvrtcDestroyProgram(&program_); }

  // Machine code for the device, or PTX for one that is newer than the compiler.
  std::string code(int capability) {
    const int newest = newest_architecture(capability);
    const std::string target =
        "--gpu-architecture=" + std::string(newest == capability ? "sm_" : "compute_") + std::to_string(newest);
    const char* const options[] = {target.c_str(), "--std=c++17", "--device-as-default-execution-space"};
    if (nvrtcCompileProgram(program_, 3, options) != NVRTC_SUCCESS)
      throw Error(LK_E_LIBRARY, "a kernel does not compile for " + target + ": " + log());
    size_t size = 0;
    const bool machine = newest == capability;
    check(machine ? nvrtcGetCUBINSize(program_, &size) : nvrtcGetPTXSize(program_, &size), "a compiled kernel");
    std::string code(size, '\0');
    check(machine ? nvrtcGetCUBIN(program_, code.data()) : nvrtcGetPTX(program_, code.data()), "a compiled kernel");
    return code;
  }

 private:
  static int newest_architecture(int capability) {
    int count = 0;
    check(nvrtcGetNumSupportedArchs(&count), "supported devices");
    std::vector<int> known(static_cast<size_t>(count));
    check(nvrtcGetSupportedArchs(known.data()), "supported devices");
    std::erase_if(known, [&](int architecture) { return architecture > capability; });
    if (known.empty())
      throw Error(LK_E_LIBRARY, "this NVRTC has no compiler for devices of capability " + std::to_string(capability));
    return *std::ranges::max_element(known);
  }
  std::string log() {
    size_t size = 0;
    if (nvrtcGetProgramLogSize(program_, &size) != NVRTC_SUCCESS || size == 0) return "no reason given";
    std::string text(size, '\0');
    return nvrtcGetProgramLog(program_, text.data()) == NVRTC_SUCCESS ? text.c_str() : "no reason given";
  }

  nvrtcProgram program_ = nullptr;
};

}  // namespace

RuntimeKernels::~RuntimeKernels() {
  for (const auto& [source, library] : libraries_) cudaLibraryUnload(library);
}

cudaKernel_t RuntimeKernels::kernel(const std::string& source, const char* name) {
  auto found = libraries_.find(source);
  if (found == libraries_.end()) {
    const std::string code = Compilation(source).code(capability_);
    cudaLibrary_t library = nullptr;
    check(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "loading a kernel");
    found = libraries_.emplace(source, library).first;
  }
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, found->second, name), "finding a kernel");
  return kernel;
}

}  // namespace lk::cuda
