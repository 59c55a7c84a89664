// y [B, dim] = [cos(a), sin(a)], a_k = scale t exp(-ln(max_period) k / (dim / 2)). Angles reach thousands of radians,
// where float has lost the fraction of a turn: they are computed in double.
#include <cmath>

#include "cuda/await_previous.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

namespace {

// `cosine` and `sine`: the columns where each half begins.
__global__ void timestep_embedding_kernel(const float* t, int64_t batch, int64_t half, double log_period, double scale,
                                          int64_t cosine, int64_t sine, Out y) {
  await_previous();
  const int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (item >= batch * half) return;
  const int64_t b = item / half, k = item % half;
  const double frequency = exp(-log_period * static_cast<double>(k) / static_cast<double>(half));
  const double angle = scale * static_cast<double>(t[b]) * frequency;
  store(y, b * 2 * half + cosine + k, static_cast<float>(cos(angle)));
  store(y, b * 2 * half + sine + k, static_cast<float>(sin(angle)));
}

}  // namespace

void timestep_embedding(Cuda& cuda, const lk_timestep_embedding_params& p) {
  const int64_t batch = p.y.dims[0], half = p.y.dims[1] / 2;
  const dim3 grid(static_cast<unsigned>(ceil_div(batch * half, block_threads)));
  cuda.launch(timestep_embedding_kernel, grid, block_threads, 0, static_cast<const float*>(p.t.data), batch, half,
              std::log(p.max_period), p.scale, p.sin_first ? half : 0, p.sin_first ? 0 : half, out(p.y));
}

}  // namespace lk::cuda
