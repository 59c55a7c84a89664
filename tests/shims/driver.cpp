// Preloaded in place of the machine's GPU driver: LORA_TEST_DRIVER is the CUDA version that it supports (0: there is
// none), LORA_TEST_DEVICES the runtime's error number when asked for devices.
#include <cuda_runtime_api.h>

#include <cstdlib>

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = std::atoi(std::getenv("LORA_TEST_DRIVER"));
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return static_cast<cudaError_t>(std::atoi(std::getenv("LORA_TEST_DEVICES")));
}
}
