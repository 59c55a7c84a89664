// A slower link (lora_kernels_link.h): kernels of one thread in a queue of copies that note the time and wait for it.
#include "cuda/await_previous.cuh"
#include "cuda/cuda.h"

namespace lk::cuda {

namespace {

__device__ uint64_t now() {  // nanoseconds
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void note_time_kernel(uint64_t* begun) {
  await_previous();
  *begun = now();
}

__global__ void wait_since_kernel(const uint64_t* begun, uint64_t nanoseconds) {
  await_previous();
  constexpr unsigned pause = 500;  // nanoseconds in which the thread leaves its processor to others
  const uint64_t since = *begun;
  while (now() - since < nanoseconds) __nanosleep(pause);
}

// Before blocks of the compute queue that have not begun: a thread that comes late would count as a slower link.
template <class... P>
void launch_first(cudaStream_t stream, void (*kernel)(P...), std::type_identity_t<P>... arguments) {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributePriority;
  attribute.val.priority = greatest;
  cudaLaunchConfig_t config{};
  config.gridDim = 1, config.blockDim = 1, config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "pacing a copy");
}

}  // namespace

void note_time(cudaStream_t stream, uint64_t* begun) { launch_first(stream, note_time_kernel, begun); }

void wait_since(cudaStream_t stream, const uint64_t* begun, int64_t nanoseconds) {
  launch_first(stream, wait_since_kernel, begun, static_cast<uint64_t>(nanoseconds));
}

}  // namespace lk::cuda
