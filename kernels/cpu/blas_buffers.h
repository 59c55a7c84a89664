// Working memory of OpenBLAS.
#pragma once

#include <cstdint>

namespace lk::cpu {

// Takes the buffers of OpenBLAS for as many threads as there is memory for, at most `threads`, and gives that number.
// OpenBLAS would take each at a thread's first product, and ask for ever where it gets none. Throws
// lk::Error(LK_E_MEMORY) where there is no room for one.
int32_t reserve_blas_buffers(int32_t threads);

}  // namespace lk::cpu
