// Convolution and its gradients as matrix products whose operands are gathered while they are staged: for shapes and
// mixtures of types for which cuDNN has no engine (few channels, types that differ, bf16 on old devices).
//
//   forward           y [pixel, o]          = sum over (kh, kw, c)  x patch [pixel, kh kw c]   weight [o, kh kw c]
//   gradient to x     dx [pixel, c]         = sum over (kh, kw, o)  dy patch [pixel, kh kw o]  weight [o, kh, kw, c]
//   gradient to w     dw [o, kh kw c]       = sum over pixels       dy [pixel, o]              x patch [pixel, kh kw c]
//
// The last sum is long and its result small: it is cut into parts of fixed size, added up by reduce_sum.
#include <algorithm>

#include "cuda/conv2d.h"
#include "cuda/tile.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

namespace {

constexpr int depth_step = 16;

// Operands of a product sum_k a(row, k) b(column, k): at(row) remembers what belongs to a row, value(at, k) is one
// element. Rows and k are within their range.

// Output pixel `row`, tap and channel k.
struct ImagePatches {
  In x;
  ConvolutionShape s;
  struct Row {
    int64_t image, i, j;
  };
  __device__ Row at(int64_t row) const {
    const int64_t line = row / s.ow;
    return {line / s.oh * s.h, line % s.oh * s.stride - s.top, row % s.ow * s.stride - s.left};
  }
  __device__ float value(const Row& row, int64_t k) const {
    const int64_t tap = k / s.c, i = row.i + tap / s.kw, j = row.j + tap % s.kw;
    if (i < 0 || i >= s.h || j < 0 || j >= s.w) return 0.0f;
    return load(x, ((row.image + i) * s.w + j) * s.c + k % s.c);
  }
};

// Input pixel `row`, tap and output channel k: the output pixel whose window has the input pixel under that tap.
struct GradientPatches {
  In dy;
  ConvolutionShape s;
  struct Row {
    int64_t image, i, j;
  };
  __device__ Row at(int64_t row) const {
    const int64_t line = row / s.w;
    return {line / s.h * s.oh, line % s.h + s.top, row % s.w + s.left};
  }
  __device__ float value(const Row& row, int64_t k) const {
    const int64_t tap = k / s.o, i = row.i - tap / s.kw, j = row.j - tap % s.kw;
    if (i < 0 || j < 0 || i % s.stride != 0 || j % s.stride != 0) return 0.0f;
    const int64_t oi = i / s.stride, oj = j / s.stride;
    if (oi >= s.oh || oj >= s.ow) return 0.0f;
    return load(dy, ((row.image + oi) * s.ow + oj) * s.o + k % s.o);
  }
};

// Row o, element k of a weight.
struct WeightRows {
  In weight;
  int64_t window;
  using Row = int64_t;
  __device__ Row at(int64_t row) const { return row * window; }
  __device__ float value(Row row, int64_t k) const { return load(weight, row + k); }
};

// Input channel `row`, tap and output channel k of a weight.
struct WeightColumns {
  In weight;
  int64_t taps, o, c;
  using Row = int64_t;
  __device__ Row at(int64_t row) const { return row; }
  __device__ float value(Row row, int64_t k) const { return load(weight, (k % o * taps + k / o) * c + row); }
};

// Output channel `row` of pixel k.
struct PixelColumns {
  In dy;
  int64_t o;
  using Row = int64_t;
  __device__ Row at(int64_t row) const { return row; }
  __device__ float value(Row row, int64_t k) const { return load(dy, k * o + row); }
};

// Tap and channel `row` of output pixel k.
struct PatchColumns {
  ImagePatches patches;
  using Row = int64_t;
  __device__ Row at(int64_t row) const { return row; }
  __device__ float value(Row row, int64_t k) const { return patches.value(patches.at(k), row); }
};

struct Product {
  int64_t m, n, k;
  int64_t part;  // of k, for each blockIdx.y
};

// y [blockIdx.y, m, n] = a b^T (+ bias [n]).
template <class A, class B>
__global__ void __launch_bounds__(tile_threads) gathered_product_kernel(Product p, A a, B b, In bias, Out y) {
  __shared__ __align__(16) TileRow left[depth_step], right[depth_step];
  const int64_t tiles = (p.n + tile - 1) / tile;
  const int64_t m0 = blockIdx.x / tiles * tile, n0 = blockIdx.x % tiles * tile;
  const int row = static_cast<int>(threadIdx.x) % tile, part = static_cast<int>(threadIdx.x) / tile * 4;
  const bool in_a = m0 + row < p.m, in_b = n0 + row < p.n;
  const typename A::Row a_row = a.at(in_a ? m0 + row : 0);
  const typename B::Row b_row = b.at(in_b ? n0 + row : 0);
  const int64_t begin = blockIdx.y * p.part, end = min(begin + p.part, p.k);
  float sum[4][4] = {};
  for (int64_t k0 = begin; k0 < end; k0 += depth_step) {
    float x[4], w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t k = k0 + part + i;
      x[i] = in_a && k < end ? a.value(a_row, k) : 0.0f;
      w[i] = in_b && k < end ? b.value(b_row, k) : 0.0f;
    }
    __syncthreads();  // the tiles have been read
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      left[part + i][row] = x[i];
      right[part + i][row] = w[i];
    }
    __syncthreads();
    multiply_tile(left, right, depth_step, sum);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t m = m0 + tile_row() + i, n = n0 + tile_column() + j;
      if (m >= p.m || n >= p.n) continue;
      store(y, (blockIdx.y * p.m + m) * p.n + n, sum[i][j] + (bias.data != nullptr ? load(bias, n) : 0.0f));
    }
  }
}

int64_t tiles_of(const Product& p) { return ceil_div(p.m, tile) * ceil_div(p.n, tile); }

template <class A, class B>
void multiply(Cuda& cuda, const Product& p, const A& a, const B& b, const In& bias, const Out& y) {
  const dim3 grid(static_cast<unsigned>(tiles_of(p)), static_cast<unsigned>(ceil_div(p.k, p.part)));
  cuda.launch(gathered_product_kernel<A, B>, grid, tile_threads, 0, p, a, b, bias, y);
}

constexpr In no_bias{nullptr, LK_F32};

}  // namespace

void convolution_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& x, const lk_tensor& weight,
                            const lk_tensor& bias, const lk_tensor& y) {
  const Product p{s.outputs(), s.o, s.window(), s.window()};
  multiply(cuda, p, ImagePatches{in(x), s}, WeightRows{in(weight), s.window()}, in(bias), out(y));
}

void data_gradient_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& dy, const lk_tensor& weight,
                              const lk_tensor& dx) {
  const int64_t depth = s.kh * s.kw * s.o;
  const Product p{s.inputs(), s.c, depth, depth};
  multiply(cuda, p, GradientPatches{in(dy), s}, WeightColumns{in(weight), s.kh * s.kw, s.o, s.c}, no_bias, out(dx));
}

void weight_gradient_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& dy, const lk_tensor& x,
                                const lk_tensor& dweight) {
  constexpr int64_t most_parts = 256, shortest_part = 256;
  Product p{s.o, s.window(), s.outputs(), s.outputs()};
  const int64_t wanted = int64_t{cuda.device().multiProcessorCount} * 4 / tiles_of(p);
  const int64_t parts = std::clamp<int64_t>(std::min(wanted, s.outputs() / shortest_part), 1, most_parts);
  p.part = ceil_div(ceil_div(s.outputs(), parts), depth_step) * depth_step;
  const int64_t used = ceil_div(p.k, p.part), elements = p.m * p.n;
  const PixelColumns a{in(dy), s.o};
  const PatchColumns b{{in(x), s}};
  if (used == 1) {
    multiply(cuda, p, a, b, no_bias, out(dweight));
    return;
  }
  float* const sums = cuda.scratch<float>(used * elements);
  multiply(cuda, p, a, b, no_bias, Out{sums, LK_F32});
  reduce_sum(
      cuda,
      {.x = {sums, LK_F32, 2, {used, elements}}, .y = {dweight.data, dweight.dtype, 2, {1, elements}}, .scale = 1.0f});
}

}  // namespace lk::cuda
