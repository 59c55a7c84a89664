// delta [B, H, Sq] = sum_d(do o), which attention's backward pass takes from every dp.
#include "cuda/attention.h"
#include "cuda/await_previous.cuh"
#include "cuda/reduce.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

namespace {

// A warp for each row of do [B, Sq, H, D].
__global__ void delta_kernel(In d_o, In o, int64_t batch, int64_t queries, int64_t heads, int64_t width, float* delta) {
  await_previous();
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= batch * queries * heads) return;  // all of a warp or none
  float sum = 0.0f;
  for (int64_t d = threadIdx.x % 32; d < width; d += 32) {
    sum = fmaf(load(d_o, row * width + d), load(o, row * width + d), sum);
  }
  sum = warp_sum(sum);
  const int64_t head = row % heads, query = row / heads % queries, item = row / (heads * queries);
  if (threadIdx.x % 32 == 0) delta[(item * heads + head) * queries + query] = sum;
}

}  // namespace

const float* attention_delta(Cuda& cuda, const lk_attention_backward_params& p) {
  const int64_t batch = p.q.dims[0], queries = p.q.dims[1], heads = p.q.dims[2], rows = batch * queries * heads;
  float* const delta = cuda.scratch<float>(rows);
  cuda.launch(delta_kernel, dim3(static_cast<unsigned>(ceil_div(rows * 32, block_threads))), block_threads, 0,
              in(p.d_o), in(p.o), batch, queries, heads, p.q.dims[3], delta);
  return delta;
}

}  // namespace lk::cuda
