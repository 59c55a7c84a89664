// Preloaded over a real GPU's free memory: LORA_TEST_FREE_MIB of it is left.
#include <cuda_runtime_api.h>

#include <cstdlib>

extern "C" cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = std::strtoull(std::getenv("LORA_TEST_FREE_MIB"), nullptr, 10) << 20;
  *total = size_t{16} << 30;
  return cudaSuccess;
}
