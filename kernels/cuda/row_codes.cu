#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/raw.cuh"
#include "cuda/row_codes.h"
#include "cuda/types.cuh"
#include "row_rounding.h"

namespace lk::cuda {

namespace {

constexpr int pack = 8;  // elements

struct RowsToRound {
  In a;
  int64_t cols;
  const float* column_factors;
  bool factor_per_column, integers;
  uint8_t* codes;
  float* factors;
};

__device__ uint32_t code_of(float v, bool integers) {
  if (!integers) return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
  return static_cast<uint8_t>(max(-127, min(127, __float2int_rn(v))));
}

__device__ uint2 codes_of(const float (&v)[pack], float inverse, bool integers) {
  uint32_t words[2] = {};
  if (integers) {
#pragma unroll
    for (int k = 0; k < pack; ++k) words[k / 4] |= code_of(v[k] * inverse, true) << (8 * (k % 4));
  } else {
#pragma unroll
    for (int k = 0; k < pack; k += 2) {
      const auto two = __nv_cvt_float2_to_fp8x2({v[k] * inverse, v[k + 1] * inverse}, __NV_SATFINITE, __NV_E4M3);
      words[k / 4] |= static_cast<uint32_t>(two) << (8 * (k % 4));
    }
  }
  return {words[0], words[1]};
}

// Of magnitudes: their bits are in the order of the numbers, and those of a NaN above all.
__device__ uint32_t magnitude(float v) { return __float_as_uint(fabsf(v)); }

__device__ uint32_t warp_most(uint32_t v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffu, v);
#else
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = max(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
#endif
}

// A row's factor, of the largest magnitude in it that each thread has seen. All threads meet once; `shared` has 32
// places, which may be used again when all have met again.
__device__ float factor_of(uint32_t seen, bool integers, uint32_t* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
  seen = warp_most(seen);
  if (lane == 0) shared[threadIdx.x / 32] = seen;
  __syncthreads();
  const float largest = __uint_as_float(warp_most(lane < warps ? shared[lane] : 0u));
  const float factor = fmaxf(largest / (integers ? largest_i8_code : largest_e4m3_code), least_row_factor);
  return largest == largest ? factor : largest;
}

// A block goes over rows and keeps one in registers, as it is stored: up to row_packs times 8 elements of 16 bits a
// thread. The next one comes while this one's largest is found, and the factors of columns stay.
constexpr int row_packs = 3, most_threads = 1024;
template <bool PerColumn>
__global__ void __launch_bounds__(most_threads) round_rows_kernel(RowsToRound p, int64_t rows) {
  await_previous();
  __shared__ uint32_t shared[2][32];
  const auto col_of = [&](int i) { return (i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * pack; };
  const int cols = static_cast<int>(p.cols);
  float factors[PerColumn ? row_packs : 1][pack];
  if constexpr (PerColumn) {
#pragma unroll
    for (int i = 0; i < row_packs; ++i)
      if (col_of(i) < cols) load8({p.column_factors, LK_F32}, col_of(i), factors[i]);
  }
  const float for_all = !PerColumn && p.column_factors != nullptr ? p.column_factors[0] : 1.0f;
  const auto fetch = [&](int64_t row, Raw<16>(&raw)[row_packs]) {
#pragma unroll
    for (int i = 0; i < row_packs; ++i)
      raw[i] = row < rows && col_of(i) < cols ? load_raw<16>(p.a.data, row * p.cols + col_of(i)) : Raw<16>{};
  };
  const auto values = [&](const Raw<16>& raw, int i, float(&v)[pack]) {
    unpack(raw, p.a.dtype, v);
#pragma unroll
    for (int k = 0; k < pack; ++k) v[k] *= PerColumn ? factors[PerColumn ? i : 0][k] : for_all;
  };
  Raw<16> now[row_packs], next[row_packs];
  fetch(blockIdx.x, next);
  int turn = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    uint32_t seen = 0;
#pragma unroll
    for (int i = 0; i < row_packs; ++i) {
      now[i] = next[i];
      if (col_of(i) >= cols) continue;
      float v[pack];
      values(now[i], i, v);
#pragma unroll
      for (const float value : v) seen = max(seen, magnitude(value));
    }
    fetch(row + gridDim.x, next);
    const float factor = factor_of(seen, p.integers, shared[turn]);
    if (threadIdx.x == 0) p.factors[row] = factor;
    const float inverse = 1 / factor;
#pragma unroll
    for (int i = 0; i < row_packs; ++i) {
      if (col_of(i) >= cols) continue;
      float v[pack];
      values(now[i], i, v);
      *reinterpret_cast<uint2*>(p.codes + row * p.cols + col_of(i)) = codes_of(v, inverse, p.integers);
    }
  }
}

// Any type, width and alignment: the row is read twice.
__global__ void __launch_bounds__(block_threads) round_any_row_kernel(RowsToRound p) {
  await_previous();
  const int64_t row = int64_t{blockIdx.x} * p.cols;
  const auto value = [&](int64_t col) {
    const float factor = p.column_factors == nullptr ? 1.0f : p.column_factors[p.factor_per_column ? col : 0];
    return load(p.a, row + col) * factor;
  };
  __shared__ uint32_t shared[32];
  uint32_t seen = 0;
  for (int64_t col = threadIdx.x; col < p.cols; col += block_threads) seen = max(seen, magnitude(value(col)));
  const float factor = factor_of(seen, p.integers, shared), inverse = 1 / factor;
  if (threadIdx.x == 0) p.factors[blockIdx.x] = factor;
  for (int64_t col = threadIdx.x; col < p.cols; col += block_threads)
    p.codes[row + col] = static_cast<uint8_t>(code_of(value(col) * inverse, p.integers));
}

// Bytes are turned 4 x 4 at a time in registers and 128 x 128 in shared memory, so that both sides are whole lines.
constexpr int tile = 128, tile_words = tile / 4, tile_pitch = tile_words + 1;

__device__ void turn(const uint32_t (&rows)[4], uint32_t (&columns)[4]) {
  const uint32_t a = __byte_perm(rows[0], rows[1], 0x5140), b = __byte_perm(rows[2], rows[3], 0x5140);
  const uint32_t c = __byte_perm(rows[0], rows[1], 0x7362), d = __byte_perm(rows[2], rows[3], 0x7362);
  columns[0] = __byte_perm(a, b, 0x5410), columns[1] = __byte_perm(a, b, 0x7632);
  columns[2] = __byte_perm(c, d, 0x5410), columns[3] = __byte_perm(c, d, 0x7632);
}

__global__ void __launch_bounds__(block_threads)
    transpose_tiles_kernel(const uint8_t* from, int64_t rows, int64_t cols, uint8_t* to) {
  await_previous();
  __shared__ uint32_t words[tile * tile_pitch];  // [column][four rows]
  const int64_t first_row = int64_t{blockIdx.y} * tile, first_col = int64_t{blockIdx.x} * tile;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  {
    // Two neighbours in a row of 32 bytes, sixteen groups of four rows; a warp has a quarter of half the tile.
    const int col = (warp % 4 * 2 + lane % 2) * 16, group = warp / 4 * 16 + lane / 2;
    if (first_row + 4 * group < rows && first_col + col < cols) {
      uint4 raw[4];
#pragma unroll
      for (int r = 0; r < 4; ++r)
        raw[r] = *reinterpret_cast<const uint4*>(from + (first_row + 4 * group + r) * cols + first_col + col);
      const auto word = [&](int r, int i) {
        return i == 0 ? raw[r].x : i == 1 ? raw[r].y : i == 2 ? raw[r].z : raw[r].w;
      };
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t four[4] = {word(0, i), word(1, i), word(2, i), word(3, i)};
        uint32_t turned[4];
        turn(four, turned);
#pragma unroll
        for (int c = 0; c < 4; ++c) words[(col + 4 * i + c) * tile_pitch + group] = turned[c];
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int pass = 0; pass < 4; ++pass) {
    const int col = pass * 32 + thread / 8, piece = thread % 8 * 4;  // four words of a column
    if (first_col + col >= cols || first_row + 4 * piece >= rows) continue;
    const uint32_t* const at = words + col * tile_pitch + piece;
    *reinterpret_cast<uint4*>(to + (first_col + col) * rows + first_row + 4 * piece) =
        make_uint4(at[0], at[1], at[2], at[3]);
  }
}

__global__ void transpose_any_kernel(const uint8_t* from, int64_t rows, int64_t cols, uint8_t* to) {
  await_previous();
  const int64_t step = int64_t{gridDim.x} * blockDim.x, count = rows * cols;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    to[i] = from[i % rows * cols + i / rows];
}

__global__ void repeat_kernel(const float* value, int64_t count, float* to) {
  await_previous();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const float one = value == nullptr ? 1.0f : *value;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) to[i] = one;
}

struct Sums {
  In sums;
  int64_t cols, packs, total;  // packs of a row, and in all
  const float *row_factors, *column_factors;
  In bias;
  Out d;
  bool add, vector;
};

__device__ void load_sums(const In& sums, int64_t i, float (&v)[pack]) {
  if (sums.dtype == LK_F32) return load8(sums, i, v);
  const int4* const from = reinterpret_cast<const int4*>(static_cast<const int32_t*>(sums.data) + i);
  const int4 a = from[0], b = from[1];
  const int all[pack] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
  for (int k = 0; k < pack; ++k) v[k] = static_cast<float>(all[k]);
}

__global__ void scale_sums_kernel(Sums p) {
  await_previous();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t u = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; u < p.total; u += step) {
    const int64_t row = u / p.packs, col = (u - row * p.packs) * pack, i = row * p.cols + col;
    const float of_row = p.row_factors[row];
    if (p.vector) {
      float v[pack], factors[pack], before[pack] = {};
      load_sums(p.sums, i, v);
      load8({p.column_factors, LK_F32}, col, factors);
      if (p.add) load8({p.d.data, p.d.dtype}, i, before);
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        v[k] = v[k] * of_row * factors[k] + before[k];
        if (p.bias.data != nullptr) v[k] += load(p.bias, col + k);
      }
      store8(p.d, i, v);
      continue;
    }
    for (int64_t k = 0; k < min(static_cast<int64_t>(pack), p.cols - col); ++k) {
      float value = load(p.sums, i + k) * of_row * p.column_factors[col + k];
      if (p.add) value += load({p.d.data, p.d.dtype}, i + k);
      if (p.bias.data != nullptr) value += load(p.bias, col + k);
      store(p.d, i + k, value);
    }
  }
}

}  // namespace

RowCodes round_rows(Cuda& cuda, lk_products products, const lk_tensor& a, int64_t rows, int64_t cols,
                    const float* column_factors, bool factor_per_column) {
  RowsToRound p{};
  p.a = in(a);
  p.cols = cols;
  p.column_factors = column_factors;
  p.factor_per_column = factor_per_column;
  p.integers = products == LK_PRODUCTS_I8;
  p.codes = cuda.scratch<uint8_t>(rows * cols);
  p.factors = cuda.scratch<float>(rows);
  const auto address = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  const bool vector =
      a.dtype != LK_F32 && cols % pack == 0 && address(a.data) % 16 == 0 && address(column_factors) % 16 == 0;
  // Whole warps, of which a processor then holds as many as there is room for at 64 registers a thread.
  const int64_t threads = ceil_div(ceil_div(cols, int64_t{pack} * row_packs), int64_t{32}) * 32;
  if (!vector || threads > most_threads) {
    cuda.launch(round_any_row_kernel, dim3(static_cast<unsigned>(rows)), block_threads, 0, p);
  } else {
    const int64_t blocks = std::min(rows, cuda.device().multiProcessorCount * (most_threads / threads));
    cuda.launch(factor_per_column ? round_rows_kernel<true> : round_rows_kernel<false>,
                dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), 0, p, rows);
  }
  return {p.codes, p.factors};
}

const uint8_t* transpose_bytes(Cuda& cuda, const void* matrix, int64_t rows, int64_t cols) {
  const auto* const from = static_cast<const uint8_t*>(matrix);
  uint8_t* const to = cuda.scratch<uint8_t>(rows * cols);
  if (rows % 16 == 0 && cols % 16 == 0 && reinterpret_cast<uintptr_t>(matrix) % 16 == 0)
    cuda.launch(transpose_tiles_kernel,
                dim3(static_cast<unsigned>(ceil_div(cols, tile)), static_cast<unsigned>(ceil_div(rows, tile))),
                block_threads, 0, from, rows, cols, to);
  else
    cuda.launch(transpose_any_kernel, grid_for(cuda, rows * cols), block_threads, 0, from, rows, cols, to);
  return to;
}

const float* repeat(Cuda& cuda, const float* value, int64_t count) {
  float* const to = cuda.scratch<float>(count);
  cuda.launch(repeat_kernel, grid_for(cuda, count), block_threads, 0, value, count, to);
  return to;
}

void scale_sums(Cuda& cuda, const void* sums, lk_dtype sums_dtype, int64_t rows, int64_t cols, const float* row_factors,
                const float* column_factors, const void* bias, lk_dtype bias_dtype, void* d, lk_dtype d_dtype,
                bool add) {
  Sums p{};
  p.sums = {sums, sums_dtype};
  p.cols = cols;
  p.packs = ceil_div(cols, int64_t{pack});
  p.total = rows * p.packs;
  p.row_factors = row_factors;
  p.column_factors = column_factors;
  p.bias = {bias, bias_dtype};
  p.d = {d, d_dtype};
  p.add = add;
  p.vector = cols % pack == 0 && reinterpret_cast<uintptr_t>(column_factors) % 16 == 0;
  cuda.launch(scale_sums_kernel, grid_for(cuda, p.total), block_threads, 0, p);
}

}  // namespace lk::cuda
