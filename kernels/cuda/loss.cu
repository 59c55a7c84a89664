// loss = mean over elements of weight l(d), d = prediction - target [B, ..., C]; weight of the sample or of the place.
//   squared error: l = d^2, l' = 2 d;   Huber: l = d^2 / 2 inside delta, delta (|d| - delta / 2) outside, l' = clamp(d)
//   absolute error: l = |d|, l' = sign(d);   pseudo-Huber: l = sqrt(d^2 + delta^2) - delta, l' = d / sqrt(d^2 +
//   delta^2)
// The sum is in float64, over runs within a sample and then over the runs.
#include "cuda/await_previous.cuh"
#include "cuda/double_sum.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

constexpr int64_t run = 4096;  // elements that a block adds

__device__ inline double pointwise(lk_loss_kind kind, double delta, double difference) {
  if (kind == LK_MSE) return difference * difference;
  const double d = fabs(difference);
  if (kind == LK_L1) return d;
  // sqrt(d^2 + delta^2) - delta without the loss of digits where d is small.
  if (kind == LK_PSEUDO_HUBER) return d * d / (sqrt(d * d + delta * delta) + delta);
  return d > delta ? delta * (d - 0.5 * delta) : 0.5 * d * d;
}

// Without the factor 2 of the squared error.
__device__ inline float slope(lk_loss_kind kind, float delta, float d) {
  if (kind == LK_MSE) return d;
  if (kind == LK_L1) return d > 0 ? 1.0f : d < 0 ? -1.0f : 0.0f;
  if (kind == LK_PSEUDO_HUBER) return d / sqrtf(d * d + delta * delta);
  return d > delta ? delta : d < -delta ? -delta : d;
}

// What the elements are weighed by and measured with; null where there is none.
struct Weights {
  const float* sample;  // [B]
  const float* place;   // [B, ...], `channels` elements each
  int64_t channels;
  const float* deltas;  // [B]
};

// One block for each run of each sample of `size` elements.
__global__ void partial_kernel(lk_loss_kind kind, double delta, ChunksIn prediction, ChunksIn target, Weights weights,
                               int64_t size, int64_t runs, double* partial) {
  await_previous();
  __shared__ double shared[block_threads / 32];
  const int64_t sample = blockIdx.x / runs, begin = (blockIdx.x - sample * runs) * run, end = min(size, begin + run);
  if (weights.deltas != nullptr) delta = static_cast<double>(weights.deltas[sample]);
  double sum = 0;
  for (int64_t i = begin + threadIdx.x * vector_width; i < end; i += block_threads * vector_width) {
    const int length = chunk_length(end - i);
    float a[8], b[8];  // both 0 beyond the end, where the loss is 0 as well
    load_chunk(prediction, sample * size + i, length, a);
    load_chunk(target, sample * size + i, length, b);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const double l = pointwise(kind, delta, static_cast<double>(a[k]) - static_cast<double>(b[k]));
      if (weights.place == nullptr)
        sum += l;
      else if (k < length)
        sum += static_cast<double>(weights.place[(sample * size + i + k) / weights.channels]) * l;
    }
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0)
    partial[blockIdx.x] = weights.sample != nullptr ? static_cast<double>(weights.sample[sample]) * sum : sum;
}

__global__ void mean_kernel(const double* partial, int64_t partials, int64_t count, float* loss) {
  await_previous();
  __shared__ double shared[block_threads / 32];
  const double sum = block_sum_of(partial, partials, shared);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum / static_cast<double>(count));
}

__global__ void backward_kernel(lk_loss_kind kind, float delta, const float* dloss, ChunksIn prediction,
                                ChunksIn target, Weights weights, int64_t size, int64_t count, ChunksOut dprediction,
                                int64_t chunks) {
  await_previous();
  const double mean = static_cast<double>(*dloss) / static_cast<double>(count);
  for (int64_t i = thread_index(); i < chunks; i += thread_count()) {
    const Chunk chunk = chunk_at(i, size);  // its row is a sample
    const double factor = weights.sample != nullptr ? mean * static_cast<double>(weights.sample[chunk.row]) : mean;
    const float width = weights.deltas != nullptr ? weights.deltas[chunk.row] : delta;
    const float scale = static_cast<float>(kind == LK_MSE ? 2.0 * factor : factor);
    const int64_t first = chunk.row * size + chunk.column;
    float a[8], b[8];
    load_chunk(prediction, first, chunk.length, a);
    load_chunk(target, first, chunk.length, b);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float d = slope(kind, width, a[k] - b[k]);
      if (weights.place == nullptr)
        a[k] = scale * d;
      else if (k < chunk.length)
        a[k] = scale * weights.place[(first + k) / weights.channels] * d;
    }
    store_chunk(dprediction, first, chunk.length, a);
  }
}

// Of the rows that the samples make.
int64_t row_width(const lk_tensor& t) { return t.dims[0] == 1 ? 0 : numel(t) / t.dims[0]; }

template <typename Params>
Weights weights_of(const Params& p) {
  const auto* weight = static_cast<const float*>(p.weight.data);
  const bool by_place = weight != nullptr && p.weight.rank > 1;
  return {by_place ? nullptr : weight, by_place ? weight : nullptr, p.prediction.dims[p.prediction.rank - 1],
          static_cast<const float*>(p.deltas.data)};
}

}  // namespace

void loss(Cuda& cuda, const lk_loss_params& p) {
  const int64_t count = numel(p.prediction), batch = p.prediction.dims[0], size = count / batch;
  const int64_t runs = ceil_div(size, run), width = row_width(p.prediction);
  double* const partial = cuda.scratch<double>(batch * runs);
  cuda.launch(partial_kernel, dim3(static_cast<unsigned>(batch * runs)), block_threads, 0, p.kind,
              static_cast<double>(p.delta), chunks_in(p.prediction, width), chunks_in(p.target, width), weights_of(p),
              size, runs, partial);
  cuda.launch(mean_kernel, 1, block_threads, 0, partial, batch * runs, count, static_cast<float*>(p.loss.data));
}

void loss_backward(Cuda& cuda, const lk_loss_backward_params& p) {
  const int64_t count = numel(p.prediction), size = count / p.prediction.dims[0];
  const int64_t chunks = p.prediction.dims[0] * chunks_of(size), width = row_width(p.prediction);
  cuda.launch(backward_kernel, grid_for(cuda, chunks), block_threads, 0, p.kind, p.delta,
              static_cast<const float*>(p.dloss.data), chunks_in(p.prediction, width), chunks_in(p.target, width),
              weights_of(p), size, count, chunks_out(p.dprediction, width), chunks);
}

}  // namespace lk::cuda
