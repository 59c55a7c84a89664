// y = act(a) * b. Backward: da = dy b act'(a), db = dy act(a). Products are rounded where separate ops would store
// them.
#include "cuda/activations.cuh"
#include "cuda/await_previous.cuh"
#include "cuda/line_places.cuh"
#include "cuda/wide_chunks.cuh"

namespace lk::cuda {

namespace {

// To the storage type and back.
__device__ inline void round_to(lk_dtype dtype, float (&v)[8]) {
  if (dtype == LK_BF16) {
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __bfloat162float(__float2bfloat16_rn(v[k]));
  } else if (dtype == LK_F16) {
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __half2float(__float2half_rn(v[k]));
  }
}

// One kernel for each activation: the backward pass has little arithmetic to spare beside its memory traffic.
template <class Activation>
__global__ void forward_kernel(ChunksIn a, ChunksIn b, ChunksOut y, LinePlaces a_lines, LinePlaces b_lines,
                               LinePlaces y_lines, int64_t count, int64_t width) {
  await_previous();
  each_chunk(
      count, width,
      [&](int length, int64_t a_at, int64_t b_at, int64_t to) {
        float v[8], other[8];
        load_chunk(a, a_at, length, v);
        load_chunk(b, b_at, length, other);
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = Activation{}.value(v[k]);
        round_to(a.tensor.dtype, v);
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] *= other[k];
        store_chunk(y, to, length, v);
      },
      a_lines, b_lines, y_lines);
}

struct BackwardLines {
  LinePlaces dy, a, b, da, db;
};

template <class Activation>
__global__ void backward_kernel(ChunksIn dy, ChunksIn a, ChunksIn b, ChunksOut da, ChunksOut db, BackwardLines lines,
                                int64_t count, int64_t width) {
  await_previous();
  each_chunk(
      count, width,
      [&](int length, int64_t dy_at, int64_t a_at, int64_t b_at, int64_t da_at, int64_t db_at) {
        float g[8], x[8], v[8];  // v: b, and then the gradient of act(a)
        load_chunk(dy, dy_at, length, g);
        load_chunk(a, a_at, length, x);
        if (da.tensor.data != nullptr) {
          load_chunk(b, b_at, length, v);
#pragma unroll
          for (int k = 0; k < 8; ++k) v[k] *= g[k];
          round_to(a.tensor.dtype, v);
        }
        float slope[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const ValueAndSlope f = Activation{}.both(x[k]);
          x[k] = f.value;
          slope[k] = f.slope;
        }
        if (da.tensor.data != nullptr) {
#pragma unroll
          for (int k = 0; k < 8; ++k) v[k] *= slope[k];
          store_chunk(da, da_at, length, v);
        }
        if (db.tensor.data != nullptr) {
          round_to(a.tensor.dtype, x);
#pragma unroll
          for (int k = 0; k < 8; ++k) g[k] *= x[k];
          store_chunk(db, db_at, length, g);
        }
      },
      lines.dy, lines.a, lines.b, lines.da, lines.db);
}

template <class Activation, lk_dtype Type>
struct WideForward {
  __device__ void operator()(const float (&in)[2][8], float (&out)[1][8]) const {
    const auto& [a, b] = in;
    auto& y = out[0];
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k] = Activation{}.value(a[k]);
    round_to(Type, y);
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k] *= b[k];
  }
};

template <class Activation, lk_dtype Type>
struct WideBackward {
  __device__ void operator()(const float (&in)[3][8], float (&out)[2][8]) const {
    const auto& [dy, a, b] = in;
    auto& [da, db] = out;
#pragma unroll
    for (int k = 0; k < 8; ++k) da[k] = b[k] * dy[k];
    round_to(Type, da);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const ValueAndSlope f = Activation{}.both(a[k]);
      da[k] *= f.slope;
      db[k] = f.value;
    }
    round_to(Type, db);
#pragma unroll
    for (int k = 0; k < 8; ++k) db[k] *= dy[k];
  }
};

// For tensors of 16 bits.
template <class Body>
auto with_short_activation(lk_unary_kind kind, const Body& body) {
  switch (kind) {
    case LK_SILU: return body(SiluBy<Short>{});
    case LK_SIGMOID: return body(Sigmoid{});
    case LK_GELU_ERF: return body(GeluErfShort{});
    default: return body(GeluTanhShort{});  // arguments were checked
  }
}

// Of tensors of `type`.
template <class Body>
void with_activation(lk_unary_kind kind, lk_dtype type, const Body& body) {
  if (type != LK_F32) return with_short_activation(kind, body);
  switch (kind) {
    case LK_SILU: return body(Silu{});
    case LK_SIGMOID: return body(Sigmoid{});
    case LK_GELU_ERF: return body(GeluErf{});
    default: return body(GeluTanh{});
  }
}

}  // namespace

void gated_activation(Cuda& cuda, const lk_gated_activation_params& p) {
  if (with_short_activation(p.kind, [&](auto activation) {
        return pass_wide_chunks<2, 1>(cuda, {p.a, p.b}, {p.y},
                                      [](auto type) { return WideForward<decltype(activation), type()>(); });
      }))
    return;
  const int64_t count = numel(p.a), width = common_line({&p.a, &p.b, &p.y});
  with_activation(p.kind, p.a.dtype, [&](auto activation) {
    cuda.launch(forward_kernel<decltype(activation)>, grid_for(cuda, chunks_of(count)), block_threads, 0,
                chunks_in(p.a, width), chunks_in(p.b, width), chunks_out(p.y, width), line_places(p.a, width),
                line_places(p.b, width), line_places(p.y, width), count, width);
  });
}

void gated_activation_backward(Cuda& cuda, const lk_gated_activation_backward_params& p) {
  if (with_short_activation(p.kind, [&](auto activation) {
        return pass_wide_chunks<3, 2>(cuda, {p.dy, p.a, p.b}, {p.da, p.db},
                                      [](auto type) { return WideBackward<decltype(activation), type()>(); });
      }))
    return;
  const int64_t count = numel(p.a), width = common_line({&p.dy, &p.a, &p.b, &p.da, &p.db});
  const auto lines = [=](const lk_tensor& t) { return line_places(t, width); };
  with_activation(p.kind, p.a.dtype, [&](auto activation) {
    cuda.launch(backward_kernel<decltype(activation)>, grid_for(cuda, chunks_of(count)), block_threads, 0,
                chunks_in(p.dy, width), chunks_in(p.a, width), chunks_in(p.b, width), chunks_out(p.da, width),
                chunks_out(p.db, width), BackwardLines{lines(p.dy), lines(p.a), lines(p.b), lines(p.da), lines(p.db)},
                count, width);
  });
}

}  // namespace lk::cuda
