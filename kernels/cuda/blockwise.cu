// 8-bit codes with a scale for each block of 256 elements, a block to a warp.
#include "cuda/await_previous.cuh"
#include "cuda/blockwise.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

__device__ inline bool aligned_codes(const uint8_t* codes) { return reinterpret_cast<uintptr_t>(codes) % 8 == 0; }

__global__ void quantize_kernel(ChunksIn x, uint8_t* codes, float* scales, int is_signed, int64_t count) {
  await_previous();
  __shared__ BlockwiseMap map;
  copy_map(is_signed, map);
  __syncthreads();
  const int64_t lane = threadIdx.x % 32;
  for (int64_t block = thread_index() / 32; block * blockwise_size < count; block += thread_count() / 32) {
    const int64_t i = block * blockwise_size + lane * 8;
    const int length = i < count ? chunk_length(count - i) : 0;
    float v[8];
    uint8_t result[8];
    load_chunk(x, i, length, v);
    const float scale = quantize_block(map, v, result);
    store_codes(codes, i, length, aligned_codes(codes), result);
    if (lane == 0) scales[block] = scale;
  }
}

__global__ void dequantize_kernel(const uint8_t* codes, const float* scales, int is_signed, ChunksOut y,
                                  int64_t count) {
  await_previous();
  __shared__ BlockwiseMap map;
  copy_map(is_signed, map);
  __syncthreads();
  for (int64_t i = thread_index() * 8; i < count; i += thread_count() * 8) {
    const int length = chunk_length(count - i);
    uint8_t stored[8];
    float v[8];
    load_codes(codes, i, length, aligned_codes(codes), stored);
    dequantize(map, stored, scales[i / blockwise_size], v);
    store_chunk(y, i, length, v);
  }
}

}  // namespace

void quantize_blockwise(Cuda& cuda, const lk_quantize_blockwise_params& p) {
  const int64_t count = numel(p.x);
  cuda.launch(quantize_kernel, grid_for(cuda, chunks_of(count)), block_threads, 0, chunks_in(p.x),
              static_cast<uint8_t*>(p.codes.data), static_cast<float*>(p.scales.data), p.is_signed != 0, count);
}

void dequantize_blockwise(Cuda& cuda, const lk_dequantize_blockwise_params& p) {
  const int64_t count = numel(p.y);
  cuda.launch(dequantize_kernel, grid_for(cuda, chunks_of(count)), block_threads, 0,
              static_cast<const uint8_t*>(p.codes.data), static_cast<const float*>(p.scales.data), p.is_signed != 0,
              chunks_out(p.y), count);
}

}  // namespace lk::cuda
