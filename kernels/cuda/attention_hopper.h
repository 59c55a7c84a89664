// Attention with the matrix instructions of capability 9.0, with sums in order: 16-bit numbers, as many heads of k as
// of q, every key seen but where it says otherwise.
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

// Each is false where it does not apply or is not the fastest.
// Heads of 64 (H200, 38 heads of 4429 rows: 371 us, cuDNN 498).
bool attention_on_hopper(Cuda& cuda, const lk_attention_params& p);
// Heads of 64 (H200, 38 heads of 4429 rows: 1070 us, cuDNN 1893 in order, 1259 in any).
bool attention_backward_on_hopper(Cuda& cuda, const lk_attention_backward_params& p);
// Heads of 128, keys may be unseen (H200 at its power limit, 24 heads of 4608 rows: 1274 us, cuDNN 1472 in order, 1337
// in any).
bool attention_backward_wide_on_hopper(Cuda& cuda, const lk_attention_backward_params& p);

}  // namespace lk::cuda
