// y = x + gate * z with a row of gates per image. Backward: dz = gate dy, dgate = sum over the rows of dy z. With
// `rms`, z's RMS norm stands for z: a norm whose weight the gate is a factor of.
//
// The gradients of wide tensors of one 16-bit type have a kernel of their own, which has the next rows on their way
// while it adds these and knows the type when it is compiled.
#include "cuda/await_previous.cuh"
#include "cuda/column_sums.cuh"
#include "cuda/rms_rows.cuh"

namespace lk::cuda {

namespace {

// What the passes share: a thread loads the gates of its columns once.
template <class Pack>
struct Gated {
  struct Gates {
    float gate[Pack::width];
  };
  In gate;
  int64_t width;
  __device__ Gates start(int64_t image, int64_t column) const {
    Gates g;
    load_or(gate, image * width + column, 0.0f, g.gate);
    return g;
  }
};

template <class Pack>
struct Forward : Gated<Pack> {
  static constexpr int sums = 0;
  using Held = Pack[2];
  In x, z;
  Out y;
  __device__ void fetch(int64_t i, Held& held) const {
    held[0] = Pack::fetch(x, i);
    held[1] = Pack::fetch(z, i);
  }
  __device__ void add(const typename Gated<Pack>::Gates& g, const Held& held, int64_t, int64_t i,
                      float (&)[1][Pack::width]) const {
    float a[Pack::width], b[Pack::width];
    held[0].unpack(x.dtype, a);
    held[1].unpack(z.dtype, b);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) a[j] += g.gate[j] * b[j];
    put(y, i, a);
  }
};

// dz alone
template <class Pack>
struct Scaled : Gated<Pack> {
  static constexpr int sums = 0;
  using Held = Pack[1];
  In dy;
  Out dz;
  __device__ void fetch(int64_t i, Held& held) const { held[0] = Pack::fetch(dy, i); }
  __device__ void add(const typename Gated<Pack>::Gates& g, const Held& held, int64_t, int64_t i,
                      float (&)[1][Pack::width]) const {
    float v[Pack::width];
    held[0].unpack(dy.dtype, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) v[j] *= g.gate[j];
    put(dz, i, v);
  }
};

// dgate, and dz in the same pass if it is there
template <class Pack>
struct Backward : Gated<Pack> {
  static constexpr int sums = 1;
  using Held = Pack[2];
  In dy, z;
  Out dz;
  __device__ void fetch(int64_t i, Held& held) const {
    held[0] = Pack::fetch(dy, i);
    held[1] = Pack::fetch(z, i);
  }
  __device__ void add(const typename Gated<Pack>::Gates& g, const Held& held, int64_t, int64_t i,
                      float (&total)[1][Pack::width]) const {
    float v[Pack::width], b[Pack::width];
    held[0].unpack(dy.dtype, v);
    held[1].unpack(z.dtype, b);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) {
      total[0][j] += v[j] * b[j];
      v[j] *= g.gate[j];
    }
    if (dz.data != nullptr) put(dz, i, v);
  }
};

struct WideGates {
  const uint16_t *dy, *z;
  In gate;
  uint16_t* dz;
  float* partial;  // [slabs, images, width]
  int width, rows;
};

constexpr int across = 32, down = 8, rows_at_once = 4;

// Block (x, y, z) does columns 8 across x .. of slab y of image z; a thread every `down`th row.
template <lk_dtype Type>
__global__ void __launch_bounds__(across* down, 2) wide_gates_kernel(WideGates p) {
  await_previous();
  constexpr int width = vector_width;
  __shared__ float4 sums[down][2][across];
  const int column = static_cast<int>(blockIdx.x * across + threadIdx.x) * width;
  const bool inside = column < p.width;
  const int64_t image = blockIdx.z, slabs = gridDim.y, slab = blockIdx.y;
  const int first = static_cast<int>(p.rows * slab / slabs), end = static_cast<int>(p.rows * (slab + 1) / slabs);
  const int64_t base = image * p.rows * p.width + column;
  const uint16_t *const dy = p.dy + base, *const z = p.z + base;
  const auto fetch = [&](int row, uint4(&held)[rows_at_once][2]) {
#pragma unroll
    for (int u = 0; u < rows_at_once; ++u) {
      if (row + u * down >= end || !inside) continue;
      const int at = (row + u * down) * p.width;
      held[u][0] = *reinterpret_cast<const uint4*>(dy + at);
      held[u][1] = *reinterpret_cast<const uint4*>(z + at);
    }
  };
  uint4 held[rows_at_once][2], coming[rows_at_once][2];
  int row = first + static_cast<int>(threadIdx.y);
  fetch(row, coming);
  float gate[width] = {}, sum[width] = {};
  if (inside) load_or(p.gate, image * p.width + column, 0.0f, gate);
  for (; row < end && inside; row += rows_at_once * down) {
#pragma unroll
    for (int u = 0; u < rows_at_once; ++u) held[u][0] = coming[u][0], held[u][1] = coming[u][1];
    fetch(row + rows_at_once * down, coming);
#pragma unroll
    for (int u = 0; u < rows_at_once; ++u) {
      if (row + u * down >= end) break;
      float g[width], v[width];
      unpack16(held[u][0], Type, g);
      unpack16(held[u][1], Type, v);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        sum[j] += g[j] * v[j];
        g[j] *= gate[j];
      }
      if (p.dz != nullptr) store8({p.dz, Type}, base + (row + u * down) * p.width, g);
    }
  }
  sums[threadIdx.y][0][threadIdx.x] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  sums[threadIdx.y][1][threadIdx.x] = make_float4(sum[4], sum[5], sum[6], sum[7]);
  __syncthreads();
  if (threadIdx.y >= 2 || !inside) return;  // a half of the columns each
  float4 total = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int y = 0; y < down; ++y) {
    const float4 four = sums[y][threadIdx.y][threadIdx.x];
    total.x += four.x, total.y += four.y, total.z += four.z, total.w += four.w;
  }
  const int64_t to = (slab * gridDim.z + image) * p.width + column;
  reinterpret_cast<float4*>(p.partial + to)[threadIdx.y] = total;
}

// Or false where they are not of one 16-bit type and packed.
bool wide_gates(Cuda& cuda, const lk_gated_residual_backward_params& p, const Columns& shape) {
  constexpr int64_t most_images = 65535, most_places = int64_t{1} << 30;  // of an image: they are counted in 32 bits
  const lk_dtype type = p.dy.dtype;
  const auto same = [&](const lk_tensor& t) { return !present(t) || t.dtype == type; };
  const auto packed = [&](const lk_tensor& t) { return aligned(t, shape.width); };
  if (type == LK_F32 || !same(p.z) || !same(p.dz) || shape.width % vector_width != 0) return false;
  if (shape.images > most_images || shape.rows * shape.width > most_places) return false;
  if (!cuda.measuring() && !(packed(p.dy) && packed(p.z) && packed(p.dz) && packed(p.gate))) return false;
  const int64_t tiles = ceil_div(shape.width, across * vector_width), count = shape.images * shape.width;
  const int64_t blocks = int64_t{cuda.device().multiProcessorCount} * 2;
  const int64_t slabs =
      std::clamp<int64_t>(blocks / (tiles * shape.images), 1, ceil_div(shape.rows, down * rows_at_once));
  float* const partial = cuda.scratch<float>(slabs * count);
  const WideGates gates{static_cast<const uint16_t*>(p.dy.data),
                        static_cast<const uint16_t*>(p.z.data),
                        in(p.gate),
                        static_cast<uint16_t*>(p.dz.data),
                        partial,
                        static_cast<int>(shape.width),
                        static_cast<int>(shape.rows)};
  cuda.launch(type == LK_BF16 ? wide_gates_kernel<LK_BF16> : wide_gates_kernel<LK_F16>,
              dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(slabs), static_cast<unsigned>(shape.images)),
              dim3(across, down), 0, gates);
  add_slabs(cuda, partial, 1, slabs, count, {{out(p.dgate)}}, 1.0f);
  return true;
}

Columns columns_of(const lk_tensor& x) { return {x.dims[0], x.dims[1], x.dims[2]}; }

}  // namespace

void gated_residual(Cuda& cuda, const lk_gated_residual_params& p) {
  const Columns shape = columns_of(p.x);
  if (p.rms != 0) return rms_rows(cuda, {p.z, p.weight, p.gate, 0.0f, shape.rows, p.eps}, p.x, true, p.y);
  with_pack({in(p.x), in(p.z)}, {in(p.gate), in(p.y)}, shape.width, [&](auto kind) {
    using Pack = decltype(kind);
    walk_columns<Pack>(cuda, Forward<Pack>{{in(p.gate), shape.width}, in(p.x), in(p.z), out(p.y)}, shape);
  });
}

void gated_residual_backward(Cuda& cuda, const lk_gated_residual_backward_params& p) {
  const Columns shape = columns_of(p.dy);
  if (p.rms != 0)
    return rms_rows_backward(cuda, {p.z, p.weight, p.gate, 0.0f, shape.rows, p.eps}, p.dy, {}, p.dz, p.dgate);
  if (present(p.dgate)) {
    if (wide_gates(cuda, p, shape) && !cuda.measuring()) return;  // the other way's memory counts as well
    with_pack({in(p.dy), in(p.z)}, {in(p.gate), in(p.dz), in(p.dgate)}, shape.width, [&](auto kind) {
      using Pack = decltype(kind);
      walk_columns<Pack>(cuda, Backward<Pack>{{in(p.gate), shape.width}, in(p.dy), in(p.z), out(p.dz)}, shape,
                         {{out(p.dgate)}});
    });
  } else if (present(p.dz)) {
    with_pack({in(p.dy)}, {in(p.gate), in(p.dz)}, shape.width, [&](auto kind) {
      using Pack = decltype(kind);
      walk_columns<Pack>(cuda, Scaled<Pack>{{in(p.gate), shape.width}, in(p.dy), out(p.dz)}, shape);
    });
  }
}

}  // namespace lk::cuda
