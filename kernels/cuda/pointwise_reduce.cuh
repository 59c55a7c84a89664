// Reductions in compiled programs (pointwise_source.h). A lane adds 8 neighbours in float32 and all else in float64,
// except down a column, where it adds the rows of a slab in float32. Of tasks that share a result each leaves a partial
// one, and the warp that is last to arrive adds these in their order: the order of a sum depends on shapes alone.
// Compiled at run time only.
#pragma once

#include "cuda/pointwise_device.cuh"

namespace lk::cuda {

struct Sum {
  __device__ static double none() { return 0; }
  template <class T>
  __device__ static T joined(T a, T b) {
    return a + b;
  }
};

// NaN wins.
struct Largest {
  __device__ static double none() { return __longlong_as_double(0xfff0000000000000ll); }  // -infinity
  template <class T>
  __device__ static T joined(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

__device__ inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// The axes of a reduction.
enum class Over { columns, rows, both };

struct Task {
  int64_t outer, row_slab, column_slab, first_row, end_row, first_column, end_column;
  int lane, lanes, rows_at_once;

  __device__ Task(const PointwiseTasks& s, int64_t task) {
    lane = threadIdx.x % 32, lanes = s.lanes, rows_at_once = 32 / s.lanes;
    column_slab = task % s.column_slabs, task /= s.column_slabs;
    row_slab = task % s.row_slabs, outer = task / s.row_slabs;
    first_row = row_slab * s.slab_rows, end_row = least(first_row + s.slab_rows, s.rows);
    first_column = column_slab * s.slab_columns, end_column = least(first_column + s.slab_columns, s.columns);
  }
};

template <class Op>
__device__ inline double joined_lanes(double v, int from, int to) {
  for (int offset = from; offset < to; offset *= 2) v = Op::joined(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

template <class Op>
__device__ inline double joined_chunk(const float (&v)[8]) {
  return Op::joined(Op::joined(Op::joined(v[0], v[4]), Op::joined(v[2], v[6])),
                    Op::joined(Op::joined(v[1], v[5]), Op::joined(v[3], v[7])));
}

// A result, or where `parts` share one, this task's part of it.
template <class Storage>
__device__ inline void put(const PointwiseArguments& a, int output, int64_t at, int64_t parts, int64_t part_at,
                           double v) {
  if (parts > 1) {
    a.partial[output][part_at] = v;
    return;
  }
  auto* const y = static_cast<typename Storage::Word*>(a.outputs[output]);
  y[at] = Storage::narrow(static_cast<float>(a.scale[output] * v));
}

template <class Op, class Storage>
__device__ inline void end_row(const PointwiseArguments& a, int output, const Task& t, int64_t row, double v) {
  v = joined_lanes<Op>(v, 1, t.lanes);
  if (t.lane % t.lanes != 0 || row >= t.end_row) return;
  const int64_t at = t.outer * a.tasks.rows + row;
  put<Storage>(a, output, at, a.tasks.column_slabs, at * a.tasks.column_slabs + t.column_slab, v);
}

// v: what the lane found in its 8 columns.
template <class Op, class Storage>
__device__ inline void end_columns(const PointwiseArguments& a, int output, const Task& t, const float (&v)[8]) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const double found = joined_lanes<Op>(v[k], t.lanes, 32);
    const int64_t column = t.first_column + (t.lane % t.lanes) * 8 + k;
    if (t.lane >= t.lanes || column >= t.end_column) continue;
    put<Storage>(a, output, t.outer * a.tasks.columns + column, a.tasks.row_slabs,
                 (t.outer * a.tasks.row_slabs + t.row_slab) * a.tasks.columns + column, found);
  }
}

template <class Op, class Storage>
__device__ inline void end_both(const PointwiseArguments& a, int output, const Task& t, double v) {
  v = joined_lanes<Op>(v, 1, 32);
  const int64_t parts = a.tasks.row_slabs * a.tasks.column_slabs;
  if (t.lane == 0)
    put<Storage>(a, output, t.outer, parts, t.outer * parts + t.row_slab * a.tasks.column_slabs + t.column_slab, v);
}

// Whether the warp is the last of those that its results need.
__device__ inline bool last_to_arrive(const PointwiseArguments& a, const Task& t) {
  const PointwiseTasks& s = a.tasks;
  const int64_t parts = s.by_outer != 0 ? s.row_slabs * s.column_slabs : s.column_slabs;
  if (parts == 1) return false;
  uint32_t* const counter = a.arrivals + (s.by_outer != 0 ? t.outer : t.outer * s.row_slabs + t.row_slab);
  __threadfence();
  __syncwarp();
  uint32_t before = 0;
  if (t.lane == 0) before = atomicAdd(counter, 1u);
  before = __shfl_sync(0xffffffffu, before, 0);
  if (before + 1 != static_cast<uint32_t>(parts)) return false;
  if (t.lane == 0) *counter = 0;
  __threadfence();
  return true;
}

// Parts `from`, from + step, ... of `count`, which lie `pitch` apart.
template <class Op>
__device__ inline double joined_parts(const double* parts, int64_t count, int64_t pitch, int from, int step) {
  double v = Op::none();
#pragma unroll 8
  for (int64_t i = from; i < count; i += step) v = Op::joined(v, __ldcg(parts + i * pitch));
  return v;
}

template <class Op, Over over, class Storage>
__device__ inline void finish(const PointwiseArguments& a, int output, const Task& t) {
  const PointwiseTasks& s = a.tasks;
  const double* const partial = a.partial[output];
  auto* const y = static_cast<typename Storage::Word*>(a.outputs[output]);
  const auto store = [&](int64_t at, double v) { y[at] = Storage::narrow(static_cast<float>(a.scale[output] * v)); };
  if constexpr (over == Over::columns) {
    if (s.column_slabs == 1) return;
    int across = 1;  // lanes that share a row
    while (across < 32 && across < s.column_slabs) across *= 2;
    const int64_t end = s.by_outer != 0 ? s.rows : t.end_row;
    for (int64_t first = s.by_outer != 0 ? 0 : t.first_row; first < end; first += 32 / across) {
      const int64_t own = first + t.lane / across, at = t.outer * s.rows + least(own, end - 1);
      const double v = joined_lanes<Op>(
          joined_parts<Op>(partial + at * s.column_slabs, s.column_slabs, 1, t.lane % across, across), 1, across);
      if (t.lane % across == 0 && own < end) store(at, v);
    }
  } else if constexpr (over == Over::rows) {
    if (s.row_slabs == 1) return;
    int across = 1;
    while (across < 32 && across < s.columns) across *= 2;
    for (int64_t first = 0; first < s.columns; first += across) {
      const int64_t column = least(first + t.lane % across, s.columns - 1);
      const double* const parts = partial + t.outer * s.row_slabs * s.columns + column;
      const double v =
          joined_lanes<Op>(joined_parts<Op>(parts, s.row_slabs, s.columns, t.lane / across, 32 / across), across, 32);
      if (t.lane < across && first + t.lane < s.columns) store(t.outer * s.columns + column, v);
    }
  } else {
    const int64_t parts = s.row_slabs * s.column_slabs;
    const double v = joined_lanes<Op>(joined_parts<Op>(partial + t.outer * parts, parts, 1, t.lane, 32), 1, 32);
    if (t.lane == 0) store(t.outer, v);
  }
}

// Calls run(kind, base, i, length) for the chunk of this lane in each place that the warp comes to; kind is Whole where
// every lane has 8 aligned elements. begin() and end(row) stand around a lane's part of a row.
template <bool one_tile, class Run, class Begin, class End>
__device__ inline void walk(const PointwiseArguments& a, const Task& t, const Run& run, const Begin& begin,
                            const End& end) {
  const int64_t width = int64_t{t.lanes} * 8, column = t.first_column + (t.lane % t.lanes) * 8;
  const int64_t base = t.outer * a.tasks.rows * a.tasks.columns;
  const auto partial = [&](int64_t row, int64_t c) {
    const int64_t left = row < t.end_row ? t.end_column - c : 0;
    run(Partial{}, 0, base + row * a.tasks.columns + c, static_cast<int>(left < 0 ? 0 : left < 8 ? left : 8));
  };
  int64_t first = t.first_row;
  if constexpr (one_tile) {
    if (a.wide && t.first_column + width <= t.end_column) {
#pragma unroll 4
      for (; first + t.rows_at_once <= t.end_row; first += t.rows_at_once) {
        const int64_t row = first + t.lane / t.lanes;
        begin();
        run(Whole{}, 0, base + row * a.tasks.columns + column, 8);
        end(row);
      }
    }
    for (; first < t.end_row; first += t.rows_at_once) {
      const int64_t row = first + t.lane / t.lanes;
      begin();
      partial(row, column);
      end(row);
    }
  } else {
    for (; first < t.end_row; first += t.rows_at_once) {
      const int64_t row = first + t.lane / t.lanes;
      begin();
      int64_t c = column, tile = t.first_column;
      if (a.wide && first + t.rows_at_once <= t.end_row) {
#pragma unroll 4
        for (; tile + width <= t.end_column; tile += width, c += width)
          run(Whole{}, 0, base + row * a.tasks.columns + c, 8);
      }
      for (; tile < t.end_column; tile += width, c += width) partial(row, c);
      end(row);
    }
  }
}

}  // namespace lk::cuda
