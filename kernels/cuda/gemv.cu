// A warp computes two outputs of every row; where the inner axis is split, the parts are added in a fixed order.
#include "cuda/await_previous.cuh"
#include "cuda/gemv.h"
#include "cuda/partial_sum.h"
#include "cuda/raw.cuh"
#include "cuda/reduce.cuh"

namespace lk::cuda {

namespace {

constexpr int threads = 128;

bool whole(const In& x, int64_t width) {
  return width % vector_width == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

// Elements i .. i + 7 of a row, but for the factors in Weight::scale.
template <int Bits>
__device__ inline void unpack_weight(const Weight& w, const Raw<Bits>& raw, int64_t row, int64_t i, float (&v)[8]) {
  unpack(raw, w.values.dtype, v);
  if constexpr (Bits == 4) {
    const float factor = factor_at(w.nf4, row, i);
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] *= factor;
  }
}

__device__ inline float weight_at(const Weight& w, int64_t row, int64_t i) {
  if (w.values.dtype != LK_NF4) return load(w.values, row * w.in + i);
  const uint8_t* const codes = static_cast<const uint8_t*>(w.values.data) + row * nf4_row_bytes(w.in);
  return nf4_table.values[nf4_code(codes, i)] * factor_at(w.nf4, row, i);
}

// A warp computes `outputs` elements of each row of y. Rows beyond p.rows repeat the last one and are not stored.
constexpr int outputs = 2;

template <int Rows, int Bits>
__global__ void __launch_bounds__(threads) gemv_kernel(Gemv p, bool vector) {
  if (!p.left_comes) await_previous();
  constexpr int depth = 2;  // loads under way for each output
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warp = int64_t{blockIdx.x} * (threads / 32) + threadIdx.x / 32;
  const Weight& w = p.weight;
  const int64_t last = w.out - 1, first = warp * outputs;
  if (first > last) return;
  float sum[Rows][outputs] = {};
  if (w.values.data != nullptr && vector) {
    const int64_t step = 32 * vector_width;
    for (int64_t base = 0; base < w.in; base += depth * step) {
      Raw<Bits> raw[depth][outputs];
#pragma unroll
      for (int d = 0; d < depth; ++d) {
        const int64_t i = base + d * step + lane * vector_width;
#pragma unroll
        for (int o = 0; o < outputs; ++o) {
          raw[d][o] = i < w.in ? load_raw<Bits>(w.values.data, min(first + o, last) * w.in + i) : Raw<Bits>{};
        }
      }
#pragma unroll
      for (int d = 0; d < depth; ++d) {
        const int64_t i = base + d * step + lane * vector_width;
        if (i >= w.in) break;
        float values[outputs][vector_width];
#pragma unroll
        for (int o = 0; o < outputs; ++o) unpack_weight(w, raw[d][o], min(first + o, last), i, values[o]);
#pragma unroll
        for (int m = 0; m < Rows; ++m) {
          float x[vector_width];
          load8(p.x, min(static_cast<int64_t>(m), p.rows - 1) * w.in + i, x);
#pragma unroll
          for (int o = 0; o < outputs; ++o) {
#pragma unroll
            for (int k = 0; k < vector_width; ++k) sum[m][o] += x[k] * values[o][k];
          }
        }
      }
    }
  } else if (w.values.data != nullptr) {
    for (int64_t i = lane; i < w.in; i += 32) {
#pragma unroll
      for (int o = 0; o < outputs; ++o) {
        const float value = weight_at(w, min(first + o, last), i);
#pragma unroll
        for (int m = 0; m < Rows; ++m)
          sum[m][o] += load(p.x, min(static_cast<int64_t>(m), p.rows - 1) * w.in + i) * value;
      }
    }
  }
#pragma unroll
  for (int o = 0; o < outputs; ++o) {
    const float scale = w.scale == nullptr ? 1.0f : w.scale[w.scale_per_row ? min(first + o, last) : 0];
#pragma unroll
    for (int m = 0; m < Rows; ++m) sum[m][o] *= scale;
  }
  if (p.left_comes) await_previous();
  for (int64_t k = lane; k < p.rank; k += 32) {
    float right[outputs];
#pragma unroll
    for (int o = 0; o < outputs; ++o) right[o] = p.branch_scale * load(p.right, min(first + o, last) * p.rank + k);
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
      const float left = load(p.left, min(static_cast<int64_t>(m), p.rows - 1) * p.rank + k);
#pragma unroll
      for (int o = 0; o < outputs; ++o) sum[m][o] += left * right[o];
    }
  }
  float mine = 0;  // lane m * outputs + o finishes element (m, o)
#pragma unroll
  for (int m = 0; m < Rows; ++m) {
#pragma unroll
    for (int o = 0; o < outputs; ++o) {
      const float total = warp_sum(sum[m][o]);
      if (lane == m * outputs + o) mine = total;
    }
  }
  const int64_t m = lane / outputs, out = first + lane % outputs;
  if (m >= min(static_cast<int64_t>(Rows), p.rows) || out > last) return;
  if (p.bias.data != nullptr) mine += load(p.bias, out);
  if (p.mask.data != nullptr) mine *= load(p.mask, m * w.out + out);
  store(p.y, m * w.out + out, mine);
}

// A thread owns 8 columns of dx. A block has `lanes` threads for each group of columns, which take the rows of its part
// of the weight in turn and add up their sums two and two.
struct Split {
  int64_t span;           // weight rows of a block
  int lanes;              // a power of two, at most the block's threads
  int64_t parts, groups;  // blocks along the weight's rows; groups of 8 columns
};

template <int Rows, int Bits>
__global__ void __launch_bounds__(threads)
    gemv_transposed_kernel(GemvTransposed p, Split split, float* partial, bool vector) {
  await_previous();
  constexpr int tile = 128;  // weight rows whose dy is in shared memory
  constexpr int depth = Rows == 8 || Bits == 32 ? 4 : 8;
  __shared__ float dy[tile][Rows];
  const Weight& w = p.weight;
  const int columns = threads / split.lanes;
  const int lane = static_cast<int>(threadIdx.x) / columns;
  const int64_t group = int64_t{blockIdx.x} * columns + threadIdx.x % columns, col = group * vector_width;
  const int64_t begin = int64_t{blockIdx.y} * split.span, end = min(begin + split.span, w.out);
  float sum[Rows][vector_width] = {};
  for (int64_t base = begin; base < end; base += tile) {
    const int count = static_cast<int>(min(static_cast<int64_t>(tile), end - base));
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * Rows; i += threads) {
      const int row = i % count, m = i / count;
      const float scale = w.scale == nullptr ? 1.0f : w.scale[w.scale_per_row ? base + row : 0];
      dy[row][m] = m < p.rows ? load(p.dy, m * w.out + base + row) * scale : 0.0f;
    }
    __syncthreads();
    if (group >= split.groups) continue;
    if (vector) {
      for (int row = lane; row < count; row += depth * split.lanes) {
        Raw<Bits> raw[depth];
#pragma unroll
        for (int d = 0; d < depth; ++d) {
          const int r = row + d * split.lanes;
          raw[d] = r < count ? load_raw<Bits>(w.values.data, (base + r) * w.in + col) : Raw<Bits>{};
        }
#pragma unroll
        for (int d = 0; d < depth; ++d) {
          const int r = row + d * split.lanes;
          if (r >= count) break;
          float values[vector_width];
          unpack_weight(w, raw[d], base + r, col, values);
#pragma unroll
          for (int m = 0; m < Rows; ++m) {
#pragma unroll
            for (int k = 0; k < vector_width; ++k) sum[m][k] += dy[r][m] * values[k];
          }
        }
      }
    } else {
      for (int row = lane; row < count; row += split.lanes) {
#pragma unroll
        for (int k = 0; k < vector_width; ++k) {
          const float value = col + k < w.in ? weight_at(w, base + row, col + k) : 0.0f;
#pragma unroll
          for (int m = 0; m < Rows; ++m) sum[m][k] += dy[row][m] * value;
        }
      }
    }
  }
  __shared__ float sums[threads][vector_width + 1];  // + 1: no bank conflicts
  float* const to = partial + int64_t{blockIdx.y} * p.rows * w.in + col;
#pragma unroll
  for (int m = 0; m < Rows; ++m) {
    if (m >= p.rows) break;
    for (int half = split.lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane >= half && lane < 2 * half) {
#pragma unroll
        for (int k = 0; k < vector_width; ++k) sums[threadIdx.x][k] = sum[m][k];
      }
      __syncthreads();
      if (lane < half) {
#pragma unroll
        for (int k = 0; k < vector_width; ++k) sum[m][k] += sums[threadIdx.x + half * columns][k];
      }
    }
    if (lane != 0 || group >= split.groups) continue;
#pragma unroll
    for (int k = 0; k < vector_width; ++k) {
      if (col + k < w.in) to[m * w.in + k] = sum[m][k];
    }
  }
}

struct Outer {
  int64_t rows, m, n, total;
  float alpha;
  In a, b;
  Out d;
  bool add;
};

__global__ void outer_kernel(Outer p) {
  await_previous();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < p.total; e += step) {
    const int64_t i = e / p.n, j = e - i * p.n;
    float sum = 0;
    for (int64_t row = 0; row < p.rows; ++row) sum += load(p.a, row * p.m + i) * load(p.b, row * p.n + j);
    sum *= p.alpha;
    if (p.add) sum += load({p.d.data, p.d.dtype}, e);
    store(p.d, e, sum);
  }
}

// Four blocks a multiprocessor keep enough loads under way; a thread should have at least 8 rows.
Split split_of(const Cuda& cuda, const Weight& w) {
  Split split{};
  split.groups = ceil_div(w.in, vector_width);
  split.lanes = threads;
  while (split.lanes > 1 && threads / split.lanes < split.groups) split.lanes /= 2;
  const int64_t wanted =
      ceil_div(int64_t{cuda.device().multiProcessorCount} * 4, ceil_div(split.groups, threads / split.lanes));
  const int64_t useful = ceil_div(w.out, int64_t{split.lanes} * 8);
  split.span = ceil_div(w.out, std::min(wanted, useful));
  split.parts = ceil_div(w.out, split.span);
  return split;
}

// The kernel for a number of rows and a size of the weight's elements: pick(rows, dtype) -> kernel<Rows, Bits>.
template <template <int, int> class Kernel>
auto pick(int64_t rows, lk_dtype dtype) {
  const auto of_size = [&]<int Rows>(std::integral_constant<int, Rows>) {
    switch (lk_bits(dtype)) {
      case 4: return Kernel<Rows, 4>::value;
      case 8: return Kernel<Rows, 8>::value;
      case 16: return Kernel<Rows, 16>::value;
      default: return Kernel<Rows, 32>::value;
    }
  };
  if (rows == 1) return of_size(std::integral_constant<int, 1>());
  if (rows <= 4) return of_size(std::integral_constant<int, 4>());
  return of_size(std::integral_constant<int, 8>());
}

template <int Rows, int Bits>
struct Forward {
  static constexpr auto value = gemv_kernel<Rows, Bits>;
};
template <int Rows, int Bits>
struct Transposed {
  static constexpr auto value = gemv_transposed_kernel<Rows, Bits>;
};

}  // namespace

Weight weight_of(const lk_tensor& weight, const lk_tensor& scale) {
  Weight w{in(weight), nullptr, false, weight.dims[0], weight.dims[1], {}};
  if (weight.dtype == LK_NF4) {
    w.nf4 = nf4_factors(weight, scale);
  } else if (present(scale)) {
    w.scale = static_cast<const float*>(scale.data);
    w.scale_per_row = numel(scale) > 1;
  }
  return w;
}

void gemv(Cuda& cuda, const Gemv& p) {
  const bool vector = whole(p.x, p.weight.in) && whole(p.weight.values, p.weight.in);
  const int64_t blocks = ceil_div(p.weight.out, outputs * (threads / 32));
  cuda.launch(pick<Forward>(p.rows, p.weight.values.dtype), dim3(static_cast<unsigned>(blocks)), dim3(threads), 0, p,
              vector);
}

void gemv_transposed(Cuda& cuda, const GemvTransposed& p) {
  const Weight& w = p.weight;
  PartialSum sum{};
  sum.stride = p.rows * w.in;
  sum.pitch = sum.cols = w.in;
  sum.rows = p.rows;
  sum.alpha = p.alpha;
  sum.mask = p.mask;
  sum.left = p.left;
  sum.right = p.right;
  sum.rank = p.rank;
  sum.out = p.dx;
  if (w.values.data != nullptr) {
    const Split split = split_of(cuda, w);
    sum.count = split.parts;
    float* const partial = cuda.scratch<float>(sum.count * sum.stride);
    sum.partial = partial;
    const dim3 grid(static_cast<unsigned>(ceil_div(split.groups, threads / split.lanes)),
                    static_cast<unsigned>(split.parts));
    cuda.launch(pick<Transposed>(p.rows, w.values.dtype), grid, dim3(threads), 0, p, split, partial,
                whole(w.values, w.in));
  }
  sum_partials(cuda, sum);
}

void outer(Cuda& cuda, int64_t rows, int64_t m, int64_t n, float alpha, In a, In b, Out d, bool add) {
  const Outer p = {rows, m, n, m * n, alpha, a, b, d, add};
  cuda.launch(outer_kernel, grid_for(cuda, p.total), dim3(block_threads), 0, p);
}

}  // namespace lk::cuda
