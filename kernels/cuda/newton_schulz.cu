// Newton-Schulz in the space of the shorter side (see cpu/newton_schulz.cpp). Three kernels over all matrices:
//   squares_kernel   parts of x x^T, over chunks of the long side
//   iterate_kernel   a block for each matrix: the sum of its parts, and the iteration
//   apply_kernel     P x or x P
// All in float64: P makes small singular values a few hundred times larger, and rounding with them.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

// A matrix as r vectors of n elements: of a wide one its rows, of a tall one its columns.
struct Sides {
  int64_t matrices, r, n;
  bool tall, vectors;  // whether four neighbours are aligned
};

// A thread has 4 x 4 places of a tile [side, side] of the square, side / 4 apart; the threads of a block make `groups`
// of them, each of which takes its own `share` elements of the stage that is in shared memory.
template <int side>
struct Tile {
  static constexpr int quarter = side / 4, group = quarter * quarter, groups = block_threads / group;
  static constexpr int share = side / 2, depth = share * groups;  // elements of a stage
};

// Vectors first .. first + side - 1, elements k .. k + depth - 1, 0 where there are none. Wide: to[vector][element],
// tall: to[element][vector].
template <int side, bool tall>
__device__ void stage(const float* x, const Sides& s, int64_t first, int64_t k, int64_t end, double* to) {
  constexpr int depth = Tile<side>::depth, pitch = tall ? side : depth + 2, inner = tall ? side : depth;
  for (int i = static_cast<int>(threadIdx.x) * 4; i < side * depth; i += block_threads * 4) {
    const int row = i / inner, column = i % inner;  // as they lie in memory
    const int64_t vector = first + (tall ? column : row), element = k + (tall ? row : column);
    const int64_t at = tall ? element * s.r + vector : vector * s.n + element;
    const int64_t inside = tall ? s.r - vector : end - element;  // along memory
    const bool within = tall ? element < end : vector < s.r;
    float4 v = make_float4(0, 0, 0, 0);
    if (within && s.vectors && inside >= 4) {
      v = *reinterpret_cast<const float4*>(x + at);
    } else if (within) {
      if (inside > 0) v.x = x[at];
      if (inside > 1) v.y = x[at + 1];
      if (inside > 2) v.z = x[at + 2];
      if (inside > 3) v.w = x[at + 3];
    }
    auto* const out = reinterpret_cast<double2*>(to + row * pitch + column);
    out[0] = make_double2(v.x, v.y);
    out[1] = make_double2(v.z, v.w);
  }
}

__device__ inline float at(const float4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// parts [matrices, chunks, r, r]
template <int side, bool tall>
__global__ void __launch_bounds__(block_threads)
    squares_kernel(const float* x, Sides s, int64_t chunk, int64_t chunks, double* parts) {
  await_previous();
  using T = Tile<side>;
  constexpr int pitch = tall ? side : T::depth + 2;
  __shared__ double2 shared[2][(tall ? T::depth : side) * pitch / 2];
  __shared__ double sums[T::groups > 1 ? side * side : 1];
  const int64_t tiles = (s.r + side - 1) / side;
  const int64_t left = blockIdx.y / tiles * side, right = blockIdx.y % tiles * side;
  const int64_t matrix = blockIdx.x / chunks, piece = blockIdx.x % chunks;
  const int64_t begin = piece * chunk, end = begin + chunk < s.n ? begin + chunk : s.n;
  double* const a = reinterpret_cast<double*>(shared[0]);
  double* const b = left == right ? a : reinterpret_cast<double*>(shared[1]);
  const int place = static_cast<int>(threadIdx.x) % T::group, group = static_cast<int>(threadIdx.x) / T::group;
  const int row = place / T::quarter, column = place % T::quarter;
  double total[4][4] = {};
  for (int64_t k = begin; k < end; k += T::depth) {
    __syncthreads();
    stage<side, tall>(x + matrix * s.r * s.n, s, left, k, end, a);
    if (left != right) stage<side, tall>(x + matrix * s.r * s.n, s, right, k, end, b);
    __syncthreads();
#pragma unroll 2
    for (int e = group * T::share; e < (group + 1) * T::share; e += tall ? 1 : 2) {
      double2 u[4], v[4];  // tall: two vectors at a time, wide: two elements
#pragma unroll
      for (int i = 0; i < (tall ? 2 : 4); ++i) {
        u[i] = *reinterpret_cast<const double2*>(
            a + (tall ? e * side + row * 4 + i * 2 : (i * T::quarter + row) * pitch + e));
        v[i] = *reinterpret_cast<const double2*>(
            b + (tall ? e * side + column * 4 + i * 2 : (i * T::quarter + column) * pitch + e));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if constexpr (tall)
            total[i][j] = fma(i % 2 == 0 ? u[i / 2].x : u[i / 2].y, j % 2 == 0 ? v[j / 2].x : v[j / 2].y, total[i][j]);
          else
            total[i][j] = fma(u[i].y, v[j].y, fma(u[i].x, v[j].x, total[i][j]));
        }
    }
  }
  const auto vector = [](int q, int own) { return tall ? own * 4 + q : q * T::quarter + own; };
  double* const out = parts + (matrix * chunks + piece) * s.r * s.r;
  for (int g = 0; g < T::groups; ++g) {  // one after the other
    if (T::groups > 1) __syncthreads();
    if (group != g) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int u = vector(i, row), v = vector(j, column);
        double value = total[i][j];
        if (T::groups > 1 && g > 0) value += sums[u * side + v];
        if (T::groups > 1) sums[u * side + v] = value;
        if (g == T::groups - 1 && left + u < s.r && right + v < s.r) out[(left + u) * s.r + right + v] = value;
      }
  }
}

// z = x y, of [r, r]. Each thread has tile x tile places of it at a time.
template <int tile>
__device__ void multiply(int r, const double* x, const double* y, double* z) {
  const int across = (r + tile - 1) / tile;
  for (int place = static_cast<int>(threadIdx.x); place < across * across; place += block_threads) {
    const int row = place / across, column = place % across;
    double sum[tile][tile] = {};
    for (int k = 0; k < r; ++k) {
      double u[tile], v[tile];
#pragma unroll
      for (int q = 0; q < tile; ++q) {
        const int i = q * across + row, j = q * across + column;
        u[q] = i < r ? x[i * r + k] : 0;
        v[q] = j < r ? y[k * r + j] : 0;
      }
#pragma unroll
      for (int i = 0; i < tile; ++i)
#pragma unroll
        for (int j = 0; j < tile; ++j) sum[i][j] = fma(u[i], v[j], sum[i][j]);
    }
#pragma unroll
    for (int i = 0; i < tile; ++i)
#pragma unroll
      for (int j = 0; j < tile; ++j) {
        if (i * across + row < r && j * across + column < r)
          z[(i * across + row) * r + j * across + column] = sum[i][j];
      }
  }
  __syncthreads();
}

struct Iteration {
  double a, b, c;
  int64_t steps;
};

// p [matrices, r, r] = scale P. Four squares in shared memory, or in `memory` where that is given.
template <int tile>
__global__ void __launch_bounds__(block_threads)
    iterate_kernel(const double* parts, int64_t chunks, const float* scales, int r, Iteration how, double* memory,
                   double* p) {
  await_previous();
  extern __shared__ double own[];
  const int size = r * r, thread = static_cast<int>(threadIdx.x);
  double* a = memory != nullptr ? memory + int64_t{blockIdx.x} * 4 * size : own;
  double *q = a + size, *total = q + size, *other = total + size;
  const auto swap = [](double*& x, double*& y) {
    double* const held = x;
    x = y, y = held;
  };
  const double scale = scales[blockIdx.x];
  for (int i = thread; i < size; i += block_threads) {
    double sum = 0;
    for (int64_t part = 0; part < chunks; ++part) sum += parts[(blockIdx.x * chunks + part) * size + i];
    a[i] = scale * scale * sum;
  }
  __syncthreads();
  for (int64_t step = 0; step < how.steps; ++step) {
    multiply<tile>(r, a, a, q);
    for (int i = thread; i < size; i += block_threads)
      q[i] = how.b * a[i] + how.c * q[i] + (i / r == i % r ? how.a : 0.0);
    __syncthreads();
    if (step == 0) {
      for (int i = thread; i < size; i += block_threads) total[i] = q[i];
      __syncthreads();
    } else {
      multiply<tile>(r, q, total, other);
      swap(total, other);
    }
    if (step + 1 == how.steps) break;
    multiply<tile>(r, q, a, other);
    multiply<tile>(r, other, q, a);
  }
  for (int i = thread; i < size; i += block_threads) p[int64_t{blockIdx.x} * size + i] = scale * total[i];
}

__device__ inline float4 rounded(const double (&v)[4]) {
  return make_float4(static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]),
                     static_cast<float>(v[3]));
}

// y = P x of wide matrices, x P of tall ones: a thread has 4 neighbours in memory of 4 rows of it. P is symmetric.
template <int side, bool tall>
__global__ void __launch_bounds__(block_threads)
    apply_kernel(const float* x, Sides s, int64_t blocks, const double* p, float* y) {
  await_previous();
  using T = Tile<side>;
  extern __shared__ double shared[];  // the columns of P that this block makes, [r, side]
  const int64_t matrix = blockIdx.x / blocks, piece = blockIdx.x % blocks, first = int64_t{blockIdx.y} * side;
  for (int i = static_cast<int>(threadIdx.x); i < s.r * side; i += block_threads) {
    const int64_t k = i / side, column = first + i % side;
    shared[i] = column < s.r ? p[matrix * s.r * s.r + k * s.r + column] : 0.0;
  }
  __syncthreads();
  const float* const from = x + matrix * s.r * s.n;
  float* const to = y + matrix * s.r * s.n;
  double sum[4][4] = {};
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (tall) {
    constexpr int rows = block_threads / T::quarter;  // threads down
    const int column = thread % T::quarter * 4;
    const int64_t row = piece * rows * 4 + thread / T::quarter;
    for (int64_t k = 0; k < s.r; k += 4) {
      float4 u[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t r = row + i * rows;
        u[i] = make_float4(0, 0, 0, 0);
        if (r >= s.n) continue;
        const float* const at = from + r * s.r + k;
        if (s.vectors) {
          u[i] = *reinterpret_cast<const float4*>(at);
        } else {
          u[i].x = at[0];
          if (k + 1 < s.r) u[i].y = at[1];
          if (k + 2 < s.r) u[i].z = at[2];
          if (k + 3 < s.r) u[i].w = at[3];
        }
      }
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        if (k + q >= s.r) break;
        const double* const v = shared + (k + q) * side + column;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const double factor = at(u[i], q);
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] = fma(factor, v[j], sum[i][j]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t r = row + i * rows;
      if (r >= s.n) continue;
      float* const out = to + r * s.r + first + column;
      if (s.vectors && first + column < s.r) {
        *reinterpret_cast<float4*>(out) = rounded(sum[i]);
        continue;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (first + column + j < s.r) out[j] = static_cast<float>(sum[i][j]);
      }
    }
  } else {
    constexpr int across = block_threads / T::quarter;  // threads along a row
    const int row = thread / across * 4;
    const int64_t column = (piece * across + thread % across) * 4;
    if (column >= s.n) return;
#pragma unroll 4
    for (int64_t k = 0; k < s.r; ++k) {
      const float* const at_column = from + k * s.n + column;
      float4 u = make_float4(0, 0, 0, 0);
      if (s.vectors) {
        u = *reinterpret_cast<const float4*>(at_column);
      } else {
        u.x = at_column[0];
        if (column + 1 < s.n) u.y = at_column[1];
        if (column + 2 < s.n) u.z = at_column[2];
        if (column + 3 < s.n) u.w = at_column[3];
      }
      const double* const v = shared + k * side + row;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const double factor = at(u, j);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i][j] = fma(v[i], factor, sum[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + row + i >= s.r) continue;
      float* const out = to + (first + row + i) * s.n + column;
      if (s.vectors) {
        *reinterpret_cast<float4*>(out) = rounded(sum[i]);
        continue;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (column + j < s.n) out[j] = static_cast<float>(sum[i][j]);
      }
    }
  }
}

// As many chunks as fill the device, of whole stages.
int64_t chunk_of(const Cuda& cuda, const Sides& s, int64_t depth) {
  const int64_t stages = ceil_div(s.n, depth), blocks = int64_t{cuda.device().multiProcessorCount} * 8;
  const int64_t chunks = std::clamp<int64_t>(blocks / s.matrices, 1, stages);
  return ceil_div(stages, chunks) * depth;
}

void iterate(Cuda& cuda, const lk_newton_schulz_params& params, const Sides& s, const double* parts, int64_t chunks,
             double* p) {
  const int64_t bytes = 4 * s.r * s.r * static_cast<int64_t>(sizeof(double));
  const bool fits = bytes <= 48 * 1024;
  double* const memory = fits ? nullptr : cuda.scratch<double>(s.matrices * 4 * s.r * s.r);
  const auto kernel = s.r <= 16 ? iterate_kernel<1> : s.r <= 32 ? iterate_kernel<2> : iterate_kernel<4>;
  cuda.launch(kernel, dim3(static_cast<unsigned>(s.matrices)), block_threads, fits ? static_cast<size_t>(bytes) : 0,
              parts, chunks, static_cast<const float*>(params.scale.data), static_cast<int>(s.r),
              Iteration{params.a, params.b, params.c, params.steps}, memory, p);
}

template <int side, bool tall>
void run(Cuda& cuda, const lk_newton_schulz_params& params, const Sides& s) {
  using T = Tile<side>;
  const int64_t chunk = chunk_of(cuda, s, T::depth), chunks = ceil_div(s.n, chunk), tiles = ceil_div(s.r, side);
  double* const parts = cuda.scratch<double>(s.matrices * chunks * s.r * s.r);
  double* const p = cuda.scratch<double>(s.matrices * s.r * s.r);
  const auto* const x = static_cast<const float*>(params.x.data);
  cuda.launch(squares_kernel<side, tall>,
              dim3(static_cast<unsigned>(s.matrices * chunks), static_cast<unsigned>(tiles * tiles)), block_threads, 0,
              x, s, chunk, chunks, parts);
  iterate(cuda, params, s, parts, chunks, p);
  const int64_t width = int64_t{block_threads} / T::quarter * 4;  // of a block along the long side
  const int64_t blocks = ceil_div(s.n, width);
  cuda.launch(apply_kernel<side, tall>, dim3(static_cast<unsigned>(s.matrices * blocks), static_cast<unsigned>(tiles)),
              block_threads, static_cast<size_t>(s.r * side) * sizeof(double), x, s, blocks, p,
              static_cast<float*>(params.y.data));
}

template <bool tall>
void run(Cuda& cuda, const lk_newton_schulz_params& params, const Sides& s) {
  if (s.r <= 16) return run<16, tall>(cuda, params, s);
  if (s.r <= 32 || s.r > 64) return run<32, tall>(cuda, params, s);  // [r, side] of P has to fit into shared memory
  run<64, tall>(cuda, params, s);
}

}  // namespace

void newton_schulz(Cuda& cuda, const lk_newton_schulz_params& p) {
  const int64_t rows = p.x.dims[p.x.rank - 2], columns = p.x.dims[p.x.rank - 1];
  Sides s{numel(p.x) / (rows * columns), std::min(rows, columns), std::max(rows, columns), rows > columns, false};
  const auto addresses = reinterpret_cast<uintptr_t>(p.x.data) | reinterpret_cast<uintptr_t>(p.y.data);
  s.vectors = columns % 4 == 0 && addresses % 16 == 0;
  s.tall ? run<true>(cuda, p, s) : run<false>(cuda, p, s);
}

}  // namespace lk::cuda
