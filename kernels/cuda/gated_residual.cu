// y = x + gate * z with a row of gates per image. Backward: dz = gate dy, dgate = sum over the rows of dy z. With
// `rms`, z's RMS norm stands for z: a norm whose weight the gate is a factor of.
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
