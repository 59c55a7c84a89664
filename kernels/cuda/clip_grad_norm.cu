// norm = sqrt(sum of squares over all gradients) / loss_scale; gradients *= min(1, max / norm) / loss_scale.
// The gradients are cut into runs of fixed length, one for each block, whose sums in float64 one block adds: the norm
// depends on neither the device nor timing. The norm and the factor stay on the device; where the norm is not finite,
// or there is nothing to change, the factor is 1 and no gradient is touched.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/double_sum.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

constexpr int64_t run = 8192;        // elements of a block
constexpr int tensors_at_once = 48;  // so that a Batch fits a kernel's arguments

// Some of the gradients. Run i of the launch belongs to the last tensor whose first_run is at most i.
struct Batch {
  float* data[tensors_at_once];
  int64_t counts[tensors_at_once], first_run[tensors_at_once];
  int32_t tensors = 0;
  int64_t runs = 0;

  void add(const lk_tensor& t) {
    data[tensors] = static_cast<float*>(t.data);
    counts[tensors] = numel(t);
    first_run[tensors++] = runs;
    runs += ceil_div(numel(t), run);
  }
};

// The elements of this block, and how many groups of four they begin with that can be read at once.
struct Run {
  float* data;
  int count, fours;
  __device__ explicit Run(const Batch& batch) {
    int t = batch.tensors - 1;
    while (batch.first_run[t] > blockIdx.x) --t;
    const int64_t begin = (blockIdx.x - batch.first_run[t]) * run;
    data = batch.data[t] + begin;
    count = static_cast<int>(min(run, batch.counts[t] - begin));
    fours = reinterpret_cast<uintptr_t>(data) % sizeof(float4) == 0 ? count / 4 : 0;
  }
};

__device__ inline double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

__global__ void squares_kernel(const __grid_constant__ Batch batch, double* sums) {
  await_previous();
  __shared__ double shared[block_threads / 32];
  const Run part(batch);
  double sum = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < part.fours; i += block_threads) {
    const float4 v = reinterpret_cast<const float4*>(part.data)[i];
    sum += (square(v.x) + square(v.y)) + (square(v.z) + square(v.w));
  }
  for (int i = 4 * part.fours + static_cast<int>(threadIdx.x); i < part.count; i += block_threads) {
    sum += square(part.data[i]);
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void norm_kernel(const double* sums, int64_t count, const float* loss_scale, float max_norm, float* norm,
                            float* factor) {
  await_previous();
  __shared__ double shared[block_threads / 32];
  const double sum = block_sum_of(sums, count, shared);
  if (threadIdx.x != 0) return;
  const double inverse_scale = loss_scale != nullptr ? 1.0 / static_cast<double>(*loss_scale) : 1.0;
  const double found = inverse_scale * sqrt(sum);
  *norm = static_cast<float>(found);
  double change = inverse_scale;
  if (max_norm > 0) change *= fmin(1.0, static_cast<double>(max_norm) / (found + 1e-6));
  *factor = isfinite(static_cast<float>(found)) ? static_cast<float>(change) : 1.0f;
}

__global__ void scale_kernel(const __grid_constant__ Batch batch, const float* factor) {
  await_previous();
  const float scale = *factor;
  if (scale == 1.0f) return;
  const Run part(batch);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < part.fours; i += block_threads) {
    float4* const p = reinterpret_cast<float4*>(part.data) + i;
    const float4 v = *p;
    *p = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
  }
  for (int i = 4 * part.fours + static_cast<int>(threadIdx.x); i < part.count; i += block_threads) {
    part.data[i] *= scale;
  }
}

template <class Body>
void for_each_batch(const lk_clip_grad_norm_params& p, const Body& body) {
  for (int64_t first = 0; first < p.count; first += tensors_at_once) {
    Batch batch;
    for (int64_t t = first; t < std::min(p.count, first + tensors_at_once); ++t) batch.add(p.gradients[t]);
    body(batch);
  }
}

dim3 grid_of(const Batch& batch) { return dim3(static_cast<unsigned>(batch.runs)); }

}  // namespace

void clip_grad_norm(Cuda& cuda, const lk_clip_grad_norm_params& p) {
  int64_t runs = 0;
  for_each_batch(p, [&](const Batch& batch) { runs += batch.runs; });
  double* const sums = cuda.scratch<double>(runs);
  float* const factor = cuda.scratch<float>(1);
  double* next = sums;
  for_each_batch(p, [&](const Batch& batch) {
    cuda.launch(squares_kernel, grid_of(batch), block_threads, 0, batch, next);
    next += batch.runs;
  });
  cuda.launch(norm_kernel, 1, block_threads, 0, sums, runs, static_cast<const float*>(p.loss_scale.data), p.max_norm,
              static_cast<float*>(p.norm.data), factor);
  for_each_batch(
      p, [&](const Batch& batch) { cuda.launch(scale_kernel, grid_of(batch), block_threads, 0, batch, factor); });
}

}  // namespace lk::cuda
