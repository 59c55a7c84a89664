// Attention's backward pass with the matrix instructions of capability 9.0.
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

// False where it does not apply or is not the fastest: it takes heads of 64 numbers of 16 bits, as many for k as for q,
// every key seen, and is for sums in order (H200, 38 heads of 4429 rows: 1244 us, cuDNN 1893 in order, 1259 in any).
bool attention_backward_on_hopper(Cuda& cuda, const lk_attention_backward_params& p);

}  // namespace lk::cuda
