// Elementwise functions and their derivatives. Each is a small functor; one kernel applies whichever is asked for to
// a chunk at a time. The accurate functions of the CUDA library, not the fast ones: results are within a few units of
// the last place of float32. What is stored in 16 bits has shorter forms where computing would take longer than memory.
#include "cuda/await_previous.cuh"
#include "cuda/line_places.cuh"
#include "cuda/unary_functions.cuh"
#include "cuda/wide_chunks.cuh"
#include "integers.h"
#include "unary_list.h"

namespace lk::cuda {

namespace {

struct Function {
  lk_unary_kind kind;
  float a, b;
};

// Functions whose code needs many registers have kernels of their own: the others keep their occupancy.
__host__ __device__ constexpr bool heavy_kind(lk_unary_kind kind) {
  return kind == LK_SIN || kind == LK_COS || kind == LK_LOG;
}

template <bool heavy, bool narrow, class Apply>
__device__ void with_function(const Function& f, const Apply& apply) {
  [[maybe_unused]] const float a = f.a, b = f.b;
  switch (f.kind) {
#define LK_CASE(which, functor)                                                    \
  case which:                                                                      \
    if constexpr (heavy_kind(which) == heavy && narrow) apply(shortened(functor)); \
    if constexpr (heavy_kind(which) == heavy && !narrow) apply(functor);           \
    break;
    LK_FOR_EACH_UNARY(LK_CASE)
#undef LK_CASE
  }
}

template <bool heavy, bool narrow>
__global__ void unary_kernel(Function function, ChunksIn x, ChunksOut y, LinePlaces x_lines, LinePlaces y_lines,
                             int64_t count, int64_t width) {
  await_previous();
  each_chunk(
      count, width,
      [&](int length, int64_t from, int64_t to) {
        float v[8];
        load_chunk(x, from, length, v);
        with_function<heavy, narrow>(function, [&v](auto f) {
#pragma unroll
          for (int k = 0; k < 8; ++k) v[k] = f.value(v[k]);
        });
        store_chunk(y, to, length, v);
      },
      x_lines, y_lines);
}

template <bool heavy, bool narrow>
__global__ void unary_backward_kernel(Function function, ChunksIn dy, ChunksIn x, ChunksOut dx, LinePlaces dy_lines,
                                      LinePlaces x_lines, LinePlaces dx_lines, int64_t count, int64_t width) {
  await_previous();
  each_chunk(
      count, width,
      [&](int length, int64_t dy_at, int64_t x_at, int64_t to) {
        float g[8], v[8];
        load_chunk(dy, dy_at, length, g);
        load_chunk(x, x_at, length, v);
        with_function<heavy, narrow>(function, [&g, &v](auto f) {
#pragma unroll
          for (int k = 0; k < 8; ++k) g[k] *= f.slope(v[k]);
        });
        store_chunk(dx, to, length, g);
      },
      dy_lines, x_lines, dx_lines);
}

template <class Activation>
struct WideForward {
  __device__ void operator()(const float (&in)[1][8], float (&out)[1][8]) const {
#pragma unroll
    for (int k = 0; k < 8; ++k) out[0][k] = Activation{}.value(in[0][k]);
  }
};

template <class Activation>
struct WideBackward {
  __device__ void operator()(const float (&in)[2][8], float (&out)[1][8]) const {
    const auto& [dy, x] = in;
#pragma unroll
    for (int k = 0; k < 8; ++k) out[0][k] = dy[k] * Activation{}.slope(x[k]);
  }
};

// Calls body(activation) with the short form of one, or returns false for any other function: what the layers of a
// network are wide.
template <class Body>
bool with_activation(lk_unary_kind kind, const Body& body) {
  switch (kind) {
    case LK_SILU: return body(SiluBy<Short>{});
    case LK_GELU_ERF: return body(GeluErfShort{});
    case LK_GELU_TANH: return body(GeluTanhShort{});
    default: return false;
  }
}

__global__ void integer_kernel(lk_unary_kind kind, int32_t a, int32_t b, const int32_t* x, int32_t* y, int64_t count) {
  await_previous();
  for (int64_t i = thread_index(); i < count; i += thread_count()) y[i] = integer_unary(kind, a, b, x[i]);
}

}  // namespace

void unary(Cuda& cuda, const lk_unary_params& p) {
  const int64_t count = numel(p.x);
  if (p.x.dtype == LK_I32) {
    const bool plain = p.kind != LK_AFFINE && p.kind != LK_CLAMP;
    const int32_t a = plain ? 0 : static_cast<int32_t>(p.a), b = plain ? 0 : static_cast<int32_t>(p.b);
    cuda.launch(integer_kernel, grid_for(cuda, count), block_threads, 0, p.kind, a, b,
                static_cast<const int32_t*>(p.x.data), static_cast<int32_t*>(p.y.data), count);
    return;
  }
  if (with_activation(p.kind, [&](auto activation) {
        return pass_wide_chunks<1, 1>(cuda, {p.x}, {p.y}, [](auto) { return WideForward<decltype(activation)>(); });
      }))
    return;
  const int64_t width = common_line({&p.x, &p.y});
  const bool narrow = p.y.dtype != LK_F32;
  const auto kernel = heavy_kind(p.kind) ? unary_kernel<true, false>
                      : narrow           ? unary_kernel<false, true>
                                         : unary_kernel<false, false>;
  cuda.launch(kernel, grid_for(cuda, chunks_of(count)), block_threads, 0, Function{p.kind, p.a, p.b},
              chunks_in(p.x, width), chunks_out(p.y, width), line_places(p.x, width), line_places(p.y, width), count,
              width);
}

void unary_backward(Cuda& cuda, const lk_unary_backward_params& p) {
  if (with_activation(p.kind, [&](auto activation) {
        return pass_wide_chunks<2, 1>(cuda, {p.dy, p.x}, {p.dx},
                                      [](auto) { return WideBackward<decltype(activation)>(); });
      }))
    return;
  const int64_t count = numel(p.x), width = common_line({&p.dy, &p.x, &p.dx});
  const bool narrow = p.dx.dtype != LK_F32;
  const auto kernel = heavy_kind(p.kind) ? unary_backward_kernel<true, false>
                      : narrow           ? unary_backward_kernel<false, true>
                                         : unary_backward_kernel<false, false>;
  cuda.launch(kernel, grid_for(cuda, chunks_of(count)), block_threads, 0, Function{p.kind, p.a, p.b},
              chunks_in(p.dy, width), chunks_in(p.x, width), chunks_out(p.dx, width), line_places(p.dy, width),
              line_places(p.x, width), line_places(p.dx, width), count, width);
}

}  // namespace lk::cuda
