// A few warps have a row, all of which is on its way at once and stays in registers as it lies in memory: 3 or 4 pieces
// of eight values a thread. Each warp sums squares around its own mean; the parts are joined by Chan's formula behind
// the only barrier of a block. So many blocks of a row each are on a multiprocessor that some wait for memory while
// others compute, and they come one by one, so that no round is uneven.
#include "cuda/await_previous.cuh"
#include "cuda/line_places.cuh"
#include "cuda/reduce.cuh"
#include "cuda/wide_norm.cuh"

namespace lk::cuda {

namespace {

using namespace wide_norm;

constexpr int most_row_warps = 8;
constexpr int row_block = 128;  // threads of a block whose rows have a warp each

struct Problem {
  const uint16_t *x, *dy, *added;  // added: where it is by row
  In weight, factor, shift;
  float unit, eps;
  int columns;
  int64_t rows, rows_per_factor;
  uint16_t* y;  // or dx
};

// What is known when a kernel is compiled: nothing; that what lies beside the rows has their type; and that they are of
// whole pieces for every thread.
enum class Fit { any, narrow, whole };

// A thread's place in a row: a warp has pieces that lie together, of which its lanes take turns, so that all of a
// thread's are at constant distances. With `Whole` every thread has all of its pieces.
template <int Pieces, bool Whole>
struct Place {
  int lane, warp, warps;
  int first, left;  // the thread's first piece, and how many there are from it on
  int64_t row;
  float count;  // values of this warp

  __device__ explicit Place(int columns)
      : lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        warps(static_cast<int>(blockDim.x) / 32),
        first(warp * Pieces * 32 + lane),
        left(columns / width - first),
        row(int64_t{blockIdx.x} * blockDim.y + threadIdx.y),
        count(static_cast<float>(min(left + lane, Pieces * 32) * width)) {}
  __device__ bool inside(int k) const { return Whole || k * 32 < left; }
  // Calls body(k, element from the first on) for each piece, the row's or not: a branch for each would keep their loads
  // apart.
  template <class Body>
  __device__ void each(const Body& body) const {
#pragma unroll
    for (int k = 0; k < Pieces; ++k) body(k, k * 32 * width);
  }
  // What lies behind the end is 0.
  __device__ uint4 fetch(const uint16_t* from, int k, int at) const {
    uint4 held = make_uint4(0, 0, 0, 0);
    if (inside(k)) held = *reinterpret_cast<const uint4*>(from + at);
    return held;
  }
  __device__ void fetch(const uint16_t* from, uint4 (&held)[Pieces]) const {
    each([&](int k, int at) { held[k] = fetch(from, k, at); });
  }
};

// The mean of what a warp has of a row.
template <bool Bf16, int Pieces>
__device__ inline float mean_of_warp(const uint4 (&held)[Pieces], float count) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < Pieces; ++k) sum += sum_of_four_lanes<Bf16>(held[k]);
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return __fdividef(sum, count);
}

// Stand for what is absent, so that no branch comes between loads.
__device__ alignas(sizeof(uint4)) uint16_t zeros[most_columns];

// Values beside a row's, of a tensor that may be absent. With `Narrow` it has the type of the kernel's rows.
template <bool Bf16, bool Narrow, class Place>
class Beside {
 public:
  __device__ Beside(const Place& place, const In& x, int64_t base)
      : place_(place),
        x_(x),
        base_(base + place.first * width),
        from_((x.data != nullptr ? static_cast<const uint16_t*>(x.data) + base : zeros) + place.first * width) {}
  __device__ void get(int k, int at, float (&v)[width]) const {
    if constexpr (Narrow) {
      unpack<Bf16>(place_.fetch(from_, k, at), v);
    } else {
      load_or(place_.inside(k) ? x_ : In{}, base_ + at, 0.0f, v);
    }
  }

 private:
  const Place& place_;
  In x_;
  int64_t base_;
  const uint16_t* from_;
};

// weight (unit + factor); a norm that takes the mean off has no weight.
template <bool Bf16, bool Centered, bool Narrow, class Place>
class Factors {
 public:
  __device__ Factors(const Problem& p, const Place& place, int64_t of_image)
      : factor_(place, p.factor, of_image),
        weight_(place, p.weight, 0),
        unit_(p.unit),
        unit_weight_(p.weight.data == nullptr ? 1.0f : 0.0f) {}
  // Times r.
  __device__ void get(int k, int at, float r, float (&f)[width]) const {
    float w[width];
    factor_.get(k, at, f);
    if constexpr (!Centered) weight_.get(k, at, w);
    const float unit = r * unit_;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      f[j] = r * f[j] + unit;
      if constexpr (!Centered) f[j] *= w[j] + unit_weight_;
    }
  }

 private:
  Beside<Bf16, Narrow, Place> factor_, weight_;
  float unit_, unit_weight_;
};

__device__ inline int64_t image_of(const Problem& p, int64_t row) {
  return p.rows == p.rows_per_factor ? 0 : quotient(row, p.rows_per_factor) * p.columns;
}

template <bool Bf16, bool Centered, bool ByRow, Fit fit, int Pieces>
__global__ void __launch_bounds__(32 * most_row_warps, Centered || Pieces == 3 ? 4 : 3) norm_rows_kernel(Problem p) {
  await_previous();
  __shared__ float4 parts[most_row_warps];  // count, mean, squares
  using Part = Place<Pieces, fit == Fit::whole>;
  constexpr bool Narrow = fit != Fit::any;
  const Part place(p.columns);
  if (place.row >= p.rows) return;  // a block whose rows have a warp each
  uint4 held[Pieces], beside[ByRow ? Pieces : 1];
  const int64_t at_row = place.row * p.columns + place.first * width;
  place.fetch(p.x + at_row, held);
  if constexpr (ByRow) place.fetch(p.added + at_row, beside);

  float mean = Centered ? mean_of_warp<Bf16>(held, place.count) : 0.0f, squares = 0;
  place.each([&](int k, int) {
    float v[width];
    unpack<Bf16>(held[k], v);
    const float middle = place.inside(k) ? mean : 0.0f;
#pragma unroll
    for (int j = 0; j < width; ++j) squares += (v[j] - middle) * (v[j] - middle);
  });
  squares = warp_sum(squares);
  const float per_column = 1.0f / static_cast<float>(p.columns);
  if (place.warps > 1) {
    if (place.lane == 0) parts[place.warp] = make_float4(place.count, mean, squares, 0);
    __syncthreads();
    float4 part = make_float4(0, 0, 0, 0);
    const int warp = place.lane % most_row_warps;
    if (warp < place.warps) part = parts[warp];
    if constexpr (Centered) {
      mean = lanes_sum<most_row_warps>(part.x * part.y) * per_column;
      const float shift = part.y - mean;
      part.z += part.x * shift * shift;
    }
    squares = lanes_sum<most_row_warps>(part.z);
  }
  const float r = rsqrtf(squares * per_column + p.eps);

  const Factors<Bf16, Centered, Narrow, Part> factors(p, place, image_of(p, place.row));
  const Beside<Bf16, Narrow, Part> shifts(place, p.shift, image_of(p, place.row));
  uint16_t* const y = p.y + at_row;
  place.each([&](int k, int at) {
    float v[width], f[width], shift[width];
    factors.get(k, at, r, f);
    if constexpr (ByRow) {
      unpack<Bf16>(beside[k], shift);
    } else {
      shifts.get(k, at, shift);
    }
    unpack<Bf16>(held[k], v);
#pragma unroll
    for (int j = 0; j < width; ++j) v[j] = (v[j] - mean) * f[j] + shift[j];
    if (place.inside(k)) *reinterpret_cast<uint4*>(y + at) = packed<Bf16>(v);
  });
}

// With g = dy weight (unit + factor) and d = x - mean:  dx = added + r (g - mean(g)) - d r^3 mean(g d), the mean of g
// only where x's is taken off.
template <bool Bf16, bool Centered, bool Onto, Fit fit, int Pieces>
__global__ void __launch_bounds__(32 * most_row_warps, Pieces == 3 || (Centered && !Onto) ? 3 : 2)
    norm_rows_dx_kernel(Problem p) {
  await_previous();
  __shared__ float2 moments[most_row_warps];  // count, mean
  __shared__ float4 parts[most_row_warps];    // squares, sums of g d and of g
  using Part = Place<Pieces, fit == Fit::whole>;
  constexpr bool Narrow = fit != Fit::any;
  const Part place(p.columns);
  if (place.row >= p.rows) return;
  uint4 held[Pieces], gradient[Pieces], onto[Onto ? Pieces : 1];
  const int64_t at_row = place.row * p.columns + place.first * width;
  place.fetch(p.x + at_row, held);
  place.fetch(p.dy + at_row, gradient);
  if constexpr (Onto) place.fetch(p.added + at_row, onto);

  float mean = Centered ? mean_of_warp<Bf16>(held, place.count) : 0.0f;
  float squares = 0, products = 0, sum = 0;
  const Factors<Bf16, Centered, Narrow, Part> factors(p, place, image_of(p, place.row));
  place.each([&](int k, int at) {
    float d[width], g[width], f[width];
    factors.get(k, at, 1.0f, f);
    unpack<Bf16>(held[k], d);
    unpack<Bf16>(gradient[k], g);
    const float middle = place.inside(k) ? mean : 0.0f;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      d[j] -= middle;
      g[j] *= f[j];
      squares += d[j] * d[j];
      products += g[j] * d[j];
      if constexpr (Centered) sum += g[j];
    }
  });
  squares = warp_sum(squares);
  products = warp_sum(products);
  if constexpr (Centered) sum = warp_sum(sum);
  const float per_column = 1.0f / static_cast<float>(p.columns);
  if (place.warps > 1) {
    if (place.lane == 0) {
      moments[place.warp] = make_float2(place.count, mean);
      parts[place.warp] = make_float4(squares, products, sum, 0);
    }
    __syncthreads();
    float2 moment = make_float2(0, 0);
    float4 part = make_float4(0, 0, 0, 0);
    const int warp = place.lane % most_row_warps;
    if (warp < place.warps) moment = moments[warp], part = parts[warp];
    if constexpr (Centered) {
      mean = lanes_sum<most_row_warps>(moment.x * moment.y) * per_column;
      const float shift = moment.y - mean;
      part.x += moment.x * shift * shift;
      part.y += part.z * shift;
      sum = lanes_sum<most_row_warps>(part.z);
    }
    squares = lanes_sum<most_row_warps>(part.x);
    products = lanes_sum<most_row_warps>(part.y);
  }
  const float r = rsqrtf(squares * per_column + p.eps);
  const float back = products * per_column * r * r * r, mean_g = Centered ? sum * per_column * r : 0.0f;

  uint16_t* const dx = p.y + at_row;
  place.each([&](int k, int at) {
    float d[width], g[width], f[width];
    factors.get(k, at, r, f);
    unpack<Bf16>(held[k], d);
    unpack<Bf16>(gradient[k], g);
#pragma unroll
    for (int j = 0; j < width; ++j) g[j] = g[j] * f[j] - ((d[j] - mean) * back + mean_g);
    if constexpr (Onto) {
      unpack<Bf16>(onto[k], d);
#pragma unroll
      for (int j = 0; j < width; ++j) g[j] += d[j];
    }
    if (place.inside(k)) *reinterpret_cast<uint4*>(dx + at) = packed<Bf16>(g);
  });
}

using Kernel = void (*)(Problem);

Problem problem_of(const WideNorm& norm, const lk_tensor& y, const lk_tensor& shift) {
  const int64_t columns = norm.x.dims[norm.x.rank - 1];
  return {.x = static_cast<const uint16_t*>(norm.x.data),
          .dy = nullptr,
          .added = nullptr,
          .weight = in(norm.weight),
          .factor = in(norm.factor),
          .shift = in(shift),
          .unit = norm.unit,
          .eps = norm.eps,
          .columns = static_cast<int>(columns),
          .rows = numel(norm.x) / columns,
          .rows_per_factor = norm.rows_per_factor,
          .y = static_cast<uint16_t*>(y.data)};
}

// Warps of a row, and pieces of a thread.
struct Split {
  int64_t warps, pieces;
  Split(int64_t all, int64_t of_thread) : warps(ceil_div(all, 32 * of_thread)), pieces(ceil_div(all, 32 * warps)) {}
  int64_t places() const { return 32 * warps * pieces; }
};

// As few idle threads as may be. Of two that leave none, more threads with less each are better where there are rows
// for several rounds of blocks.
Split split_of(const Cuda& cuda, int64_t rows, int64_t all) {
  const Split four(all, 4), three(all, 3);
  const bool many = rows > int64_t{cuda.device().multiProcessorCount} * 16;
  if (three.warps > most_row_warps || three.places() > four.places()) return four;
  return three.places() < four.places() || (many && three.places() == all) ? three : four;
}

// kernel_of(bf16, fit, pieces) of constants.
template <class KernelOf>
void launch_rows(Cuda& cuda, const WideNorm& norm, Problem p, const lk_tensor& dy, const lk_tensor& added,
                 const KernelOf& kernel_of) {
  p.dy = static_cast<const uint16_t*>(dy.data), p.added = static_cast<const uint16_t*>(added.data);
  const int64_t all = p.columns / width;
  const Split split = split_of(cuda, p.rows, all);
  const int64_t together = split.warps == 1 ? row_block / 32 : 1;
  bool narrow = true;
  for (const In& x : {p.weight, p.factor, p.shift}) narrow = narrow && (x.data == nullptr || x.dtype == norm.x.dtype);
  const auto of_fit = [&](auto bf16, auto fit) {
    return split.pieces == 3 ? kernel_of(bf16, fit, std::integral_constant<int, 3>())
                             : kernel_of(bf16, fit, std::integral_constant<int, 4>());
  };
  const auto of_type = [&](auto bf16) {
    if (!narrow) return of_fit(bf16, std::integral_constant<Fit, Fit::any>());
    return split.places() == all ? of_fit(bf16, std::integral_constant<Fit, Fit::whole>())
                                 : of_fit(bf16, std::integral_constant<Fit, Fit::narrow>());
  };
  cuda.launch(norm.x.dtype == LK_BF16 ? of_type(std::true_type()) : of_type(std::false_type()),
              dim3(static_cast<unsigned>(ceil_div(p.rows, together))),
              dim3(static_cast<unsigned>(32 * split.warps), static_cast<unsigned>(together)), 0, p);
}

}  // namespace

void norm_rows(Cuda& cuda, const WideNorm& norm, const lk_tensor& added, bool by_row, const lk_tensor& y) {
  const Problem problem = problem_of(norm, y, by_row ? lk_tensor{} : added);
  launch_rows(cuda, norm, problem, {}, by_row ? added : lk_tensor{}, [&](auto bf16, auto fit, auto pieces) -> Kernel {
    if (norm.centered) return norm_rows_kernel<bf16(), true, false, fit(), pieces()>;
    return by_row ? norm_rows_kernel<bf16(), false, true, fit(), pieces()>
                  : norm_rows_kernel<bf16(), false, false, fit(), pieces()>;
  });
}

void norm_rows_dx(Cuda& cuda, const WideNorm& norm, const lk_tensor& dy, const lk_tensor& added, const lk_tensor& dx) {
  const bool onto = present(added);
  launch_rows(cuda, norm, problem_of(norm, dx, {}), dy, added, [&](auto bf16, auto known, auto pieces) -> Kernel {
    // Of whole rows the compiler has so much on its way that registers run out.
    constexpr Fit fit = known() == Fit::whole ? Fit::narrow : known();
    if (norm.centered)
      return onto ? norm_rows_dx_kernel<bf16(), true, true, fit, pieces()>
                  : norm_rows_dx_kernel<bf16(), true, false, fit, pieces()>;
    return onto ? norm_rows_dx_kernel<bf16(), false, true, fit, pieces()>
                : norm_rows_dx_kernel<bf16(), false, false, fit, pieces()>;
  });
}

}  // namespace lk::cuda
