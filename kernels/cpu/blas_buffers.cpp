#include "cpu/blas_buffers.h"

#include <cstddef>
#include <mutex>
#include <vector>

#include "backend.h"
#include "cpu/address_space.h"

// Exported by OpenBLAS 0.3; without them its buffers are taken when they are needed.
extern "C" {
void* blas_memory_alloc(int kind) __attribute__((weak));
void blas_memory_free(void* buffer) __attribute__((weak));
}

namespace lk::cpu {
namespace {

constexpr size_t buffer_bytes = size_t{132} << 20;  // no less than a buffer of OpenBLAS 0.3, with what it is aligned to

}  // namespace

int32_t reserve_blas_buffers(int32_t threads) {
  static std::mutex mutex;
  static int32_t reserved = 0;
  if (blas_memory_alloc == nullptr || blas_memory_free == nullptr) return threads;
  const std::lock_guard lock(mutex);
  if (threads <= reserved) return threads;
  int32_t fit = threads;
  while (fit > reserved && !there_is(static_cast<size_t>(fit - reserved) * buffer_bytes)) --fit;
  if (fit == 0)
    throw Error(
        LK_E_MEMORY,
        "matrix products need 132 MiB of address space for each thread, and there are none left. Raise the limit "
        "(ulimit -v), or end other programs");
  // All at once: one that is given back is used again, and stays where it is.
  std::vector<void*> buffers(static_cast<size_t>(fit));
  for (void*& buffer : buffers) buffer = blas_memory_alloc(0);
  for (void* buffer : buffers) blas_memory_free(buffer);
  reserved = fit;
  return fit;
}

}  // namespace lk::cpu
