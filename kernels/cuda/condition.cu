// The condition of lk_if_finite_begin inside a recorded graph, and the check that this build has code for the device.
#include "cuda/await_previous.cuh"
#include "cuda/cuda.h"

namespace lk::cuda {

namespace {

__global__ void condition_kernel(cudaGraphConditionalHandle handle, const float* value) {
  await_previous();
  cudaGraphSetConditional(handle, isfinite(*value) ? 1u : 0u);
}

}  // namespace

void set_condition(cudaStream_t stream, cudaGraphConditionalHandle handle, const float* value) {
  condition_kernel<<<1, 1, 0, stream>>>(handle, value);
  check(cudaGetLastError(), "condition_kernel");
}

std::string missing_code() {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, condition_kernel);
  if (status == cudaSuccess) return {};
  cudaGetLastError();
  int index = 0;
  cudaDeviceProp device{};
  cudaGetDevice(&index);
  cudaGetDeviceProperties(&device, index);
  if (status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction)
    return std::string("the GPU does not answer: ") + cudaGetErrorString(status);
  return std::string(device.name) + " has compute capability " + std::to_string(device.major) + "." +
         std::to_string(device.minor) + ", and this build has no code for it. Build with -DCMAKE_CUDA_ARCHITECTURES=" +
         std::to_string(device.major * 10 + device.minor) + (device.major < 7 ? "; 7.5 is the oldest that works" : "");
}

int compiled_for() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, condition_kernel), "attributes of a kernel");
  return attributes.ptxVersion;
}

}  // namespace lk::cuda
