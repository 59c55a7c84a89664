// Convolution and its gradients as matrix products whose operands are gathered while they are staged: for shapes and
// mixtures of types for which cuDNN has no engine (few channels, types that differ, bf16 on old devices).
//
//   forward           y [pixel, o]      = sum over (tap, c)  x patch [pixel, tap c]   weight [o, tap c]
//   gradient to x     dx [pixel, c]     = sum over (tap, o)  dy patch [pixel, tap o]  weight [o, tap, c]
//   gradient to w     dw [o, tap c]     = sum over pixels    dy [pixel, o]            x patch [pixel, tap c]
//
// with a tap for each (kt, kh, kw), and for each group of channels on its own: blockIdx.z is the group.
// The last sum is long and its result small: it is cut into parts of fixed size, added up by reduce_sum.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/convolution.h"
#include "cuda/tile.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

namespace {

constexpr int depth_step = 16;

// Operands of a product sum_k a(row, k) b(column, k): at(row) remembers what belongs to a row, value(at, k) is one
// element. Rows and k are within their range.

struct Tap {
  int64_t t, h, w;
};

__device__ inline Tap tap_at(const ConvolutionShape& s, int64_t tap) {
  const int64_t line = tap / s.w.kernel, frame = line / s.h.kernel;
  return {frame, line - frame * s.h.kernel, tap - line * s.w.kernel};
}

// Pixel `index` of images of these sizes, its image counted in frames.
struct Pixel {
  int64_t image, t, h, w;
};

__device__ inline Pixel pixel_at(int64_t index, int64_t frames, int64_t lines, int64_t width) {
  const int64_t line = index / width, frame = line / lines, image = frame / frames;
  return {image, frame - image * frames, line - frame * lines, index - line * width};
}

// Output pixel `row`, tap and channel k.
struct ImagePatches {
  In x;
  ConvolutionShape s;
  using Row = Pixel;  // where the window begins
  __device__ Row at(int64_t row) const {
    const Pixel p = pixel_at(row, s.t.out, s.h.out, s.w.out);
    return {p.image * s.t.in, p.t * s.t.stride - s.t.before, p.h * s.h.stride - s.h.before,
            p.w * s.w.stride - s.w.before};
  }
  __device__ float value(const Row& row, int64_t k) const {
    const int64_t place = k / s.c;
    const Tap tap = tap_at(s, place);
    const int64_t t = row.t + tap.t, i = row.h + tap.h, j = row.w + tap.w;
    if (t < 0 || t >= s.t.in || i < 0 || i >= s.h.in || j < 0 || j >= s.w.in) return 0.0f;
    const int64_t pixel = ((row.image + t) * s.h.in + i) * s.w.in + j;
    return load(x, (pixel * s.groups + blockIdx.z) * s.c + k - place * s.c);
  }
};

// The window that has an input element under tap k of an axis, or -1; `at` is the element's place, padding counted.
__device__ inline int64_t window_of(const ConvolutionAxis& a, int64_t at, int64_t k) {
  const int64_t start = at - k, window = start / a.stride;
  return start >= 0 && window * a.stride == start && window < a.out ? window : -1;
}

// Input pixel `row`, tap and output channel k: the output pixel whose window has the input pixel under that tap.
struct GradientPatches {
  In dy;
  ConvolutionShape s;
  using Row = Pixel;
  __device__ Row at(int64_t row) const {
    const Pixel p = pixel_at(row, s.t.in, s.h.in, s.w.in);
    return {p.image * s.t.out, p.t + s.t.before, p.h + s.h.before, p.w + s.w.before};
  }
  __device__ float value(const Row& row, int64_t k) const {
    const int64_t place = k / s.o;
    const Tap tap = tap_at(s, place);
    const int64_t t = window_of(s.t, row.t, tap.t), i = window_of(s.h, row.h, tap.h), j = window_of(s.w, row.w, tap.w);
    if (t < 0 || i < 0 || j < 0) return 0.0f;
    const int64_t pixel = ((row.image + t) * s.h.out + i) * s.w.out + j;
    return load(dy, (pixel * s.groups + blockIdx.z) * s.o + k - place * s.o);
  }
};

// Row o, element k of a weight of `rows` outputs.
struct WeightRows {
  In weight;
  int64_t rows, window;
  using Row = int64_t;
  __device__ Row at(int64_t row) const { return (blockIdx.z * rows + row) * window; }
  __device__ float value(Row row, int64_t k) const { return load(weight, row + k); }
};

// Input channel `row`, tap and output channel k of a weight.
struct WeightColumns {
  In weight;
  int64_t taps, o, c;
  using Row = int64_t;
  __device__ Row at(int64_t row) const { return row; }
  __device__ float value(Row row, int64_t k) const {
    return load(weight, ((blockIdx.z * o + k % o) * taps + k / o) * c + row);
  }
};

// Output channel `row` of pixel k.
struct PixelColumns {
  In dy;
  int64_t groups, o;
  using Row = int64_t;
  __device__ Row at(int64_t row) const { return row; }
  __device__ float value(Row row, int64_t k) const { return load(dy, (k * groups + blockIdx.z) * o + row); }
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
  int64_t groups;
  bool rows;  // the groups' results lie below each other, and not side by side
  __device__ int64_t place(int64_t row, int64_t column) const {
    if (rows) return ((int64_t{blockIdx.y} * groups + blockIdx.z) * m + row) * n + column;
    return ((int64_t{blockIdx.y} * m + row) * groups + blockIdx.z) * n + column;
  }
};

// y [blockIdx.y, groups, m, n] or [blockIdx.y, m, groups, n] = a b^T (+ bias [groups, n]).
template <class A, class B>
__global__ void __launch_bounds__(tile_threads) gathered_product_kernel(Product p, A a, B b, In bias, Out y) {
  await_previous();
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
      const float offset = bias.data != nullptr ? load(bias, blockIdx.z * p.n + n) : 0.0f;
      store(y, p.place(m, n), sum[i][j] + offset);
    }
  }
}

int64_t tiles_of(const Product& p) { return ceil_div(p.m, tile) * ceil_div(p.n, tile); }

template <class A, class B>
void multiply(Cuda& cuda, const Product& p, const A& a, const B& b, const In& bias, const Out& y) {
  const dim3 grid(static_cast<unsigned>(tiles_of(p)), static_cast<unsigned>(ceil_div(p.k, p.part)),
                  static_cast<unsigned>(p.groups));
  cuda.launch(gathered_product_kernel<A, B>, grid, tile_threads, 0, p, a, b, bias, y);
}

constexpr In no_bias{nullptr, LK_F32};

}  // namespace

void convolution_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& x, const lk_tensor& weight,
                            const lk_tensor& bias, const lk_tensor& y) {
  const Product p{s.outputs(), s.o, s.window(), s.window(), s.groups, false};
  multiply(cuda, p, ImagePatches{in(x), s}, WeightRows{in(weight), s.o, s.window()}, in(bias), out(y));
}

void data_gradient_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& dy, const lk_tensor& weight,
                              const lk_tensor& dx) {
  const int64_t depth = s.taps() * s.o;
  const Product p{s.inputs(), s.c, depth, depth, s.groups, false};
  multiply(cuda, p, GradientPatches{in(dy), s}, WeightColumns{in(weight), s.taps(), s.o, s.c}, no_bias, out(dx));
}

void weight_gradient_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& dy, const lk_tensor& x,
                                const lk_tensor& dweight) {
  constexpr int64_t most_parts = 256, shortest_part = 256;
  Product p{s.o, s.window(), s.outputs(), s.outputs(), s.groups, true};
  const int64_t wanted = int64_t{cuda.device().multiProcessorCount} * 4 / (tiles_of(p) * s.groups);
  const int64_t parts = std::clamp<int64_t>(std::min(wanted, s.outputs() / shortest_part), 1, most_parts);
  p.part = ceil_div(ceil_div(s.outputs(), parts), depth_step) * depth_step;
  const int64_t used = ceil_div(p.k, p.part), elements = s.groups * p.m * p.n;
  const PixelColumns a{in(dy), s.groups, s.o};
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
