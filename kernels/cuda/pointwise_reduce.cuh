// Reductions in compiled programs (pointwise_source.h). A lane adds 8 neighbours in float32 and all else in float64,
// except down a column, where it adds a few rows in float32. Of warps or blocks that share a result each leaves a part
// of it, and the one that is last to arrive adds these in their order: the order of a sum depends on shapes alone.
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
  int64_t outer, block, row_slab, column_slab, first_row, end_row, first_column, end_column;
  int lane, warp, lanes, rows_at_once;
  bool idle;  // without rows

  __device__ explicit Task(const PointwiseTasks& s) {
    lane = threadIdx.x % 32, warp = threadIdx.x / 32, lanes = s.lanes, rows_at_once = 32 / s.lanes;
    block = blockIdx.x % s.blocks, outer = blockIdx.x / s.blocks;
    if (s.down != 0) {
      column_slab = block % s.column_slabs, row_slab = block / s.column_slabs * pointwise_warps + warp;
    } else {
      const int64_t task = block * pointwise_warps + warp;
      column_slab = task % s.column_slabs, row_slab = task / s.column_slabs;
    }
    idle = row_slab >= s.row_slabs;
    first_row = idle ? s.rows : row_slab * s.slab_rows, end_row = least(first_row + s.slab_rows, s.rows);
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

// A result, or where `parts` make one, that part of it.
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

// Of the warps of a block, in their order.
template <class Op>
__device__ inline double joined_warps(const double* v, int pitch) {
  double joined = v[0];
#pragma unroll
  for (int warp = 1; warp < pointwise_warps; ++warp) joined = Op::joined(joined, v[warp * pitch]);
  return joined;
}

constexpr int lane_pitch = 9, warp_pitch = 32 * lane_pitch;  // without conflicts of banks

// One for all outputs, whatever their operations and types: an own one of each would be more than a block may have.
__device__ inline double* found_in_columns() {
  __shared__ double found[pointwise_warps * warp_pitch];
  return found;
}

// v: what the lane found in its 8 columns. A thread then has one column.
template <class Op, class Storage>
__device__ inline void end_columns(const PointwiseArguments& a, int output, const Task& t, const double (&v)[8]) {
  double* const found = found_in_columns();
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 8; ++k)
    found[t.warp * warp_pitch + t.lane * lane_pitch + k] = joined_lanes<Op>(v[k], t.lanes, 32);
  __syncthreads();
  const PointwiseTasks& s = a.tasks;
  const int own = threadIdx.x;
  const int64_t column = t.first_column + own, row_block = t.block / s.column_slabs;
  if (column >= t.end_column) return;
  put<Storage>(a, output, t.outer * s.columns + column, s.row_blocks,
               (t.outer * s.row_blocks + row_block) * s.columns + column,
               joined_warps<Op>(found + own / 8 * lane_pitch + own % 8, warp_pitch));
}

template <class Op, class Storage>
__device__ inline void end_both(const PointwiseArguments& a, int output, const Task& t, double v) {
  __shared__ double found[pointwise_warps];
  v = joined_lanes<Op>(v, 1, 32);
  __syncthreads();
  if (t.lane == 0) found[t.warp] = v;
  __syncthreads();
  if (threadIdx.x == 0)
    put<Storage>(a, output, t.outer, a.tasks.blocks, t.outer * a.tasks.blocks + t.block, joined_warps<Op>(found, 1));
}

// Whether the caller is the last of `parts` to count.
__device__ inline bool counted_last(uint32_t* counter, int64_t parts) {
  const bool last = atomicAdd(counter, 1u) + 1 == static_cast<uint32_t>(parts);
  if (last) *counter = 0;
  return last;
}

// Whether the warp is the last of those that share its results over columns.
__device__ inline bool last_warp(const PointwiseArguments& a, const Task& t) {
  const PointwiseTasks& s = a.tasks;
  if (s.column_slabs == 1 || t.idle) return false;
  __threadfence();
  __syncwarp();
  int last = 0;
  if (t.lane == 0) last = counted_last(a.arrivals + t.outer * s.row_slabs + t.row_slab, s.column_slabs);
  last = __shfl_sync(0xffffffffu, last, 0);
  if (last != 0) __threadfence();
  return last != 0;
}

// Whether the block is the last of those that share its results over rows, or over both.
template <Over over>
__device__ inline bool last_block(const PointwiseArguments& a, const Task& t) {
  const PointwiseTasks& s = a.tasks;
  const int64_t parts = over == Over::rows ? s.row_blocks : s.blocks;
  if (parts == 1) return false;
  const int64_t counter =
      over == Over::rows ? s.rows_counters + t.outer * s.column_slabs + t.column_slab : s.both_counters + t.outer;
  __threadfence();
  __syncthreads();
  int last = 0;
  if (threadIdx.x == 0) last = counted_last(a.arrivals + counter, parts);
  last = __syncthreads_or(last);
  if (last != 0) __threadfence();
  return last != 0;
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
    int across = 1;  // lanes that share a row
    while (across < 32 && across < s.column_slabs) across *= 2;
    for (int64_t first = t.first_row; first < t.end_row; first += 32 / across) {
      const int64_t own = first + t.lane / across, at = t.outer * s.rows + least(own, t.end_row - 1);
      const double v = joined_lanes<Op>(
          joined_parts<Op>(partial + at * s.column_slabs, s.column_slabs, 1, t.lane % across, across), 1, across);
      if (t.lane % across == 0 && own < t.end_row) store(at, v);
    }
  } else if constexpr (over == Over::rows) {
    const int64_t column = t.first_column + threadIdx.x;
    if (column >= t.end_column) return;
    const double* const parts = partial + t.outer * s.row_blocks * s.columns + column;
    store(t.outer * s.columns + column, joined_parts<Op>(parts, s.row_blocks, s.columns, 0, 1));
  } else if (t.warp == 0) {
    const double* const parts = partial + t.outer * s.blocks;
    const double v = joined_lanes<Op>(joined_parts<Op>(parts, s.blocks, 1, t.lane, 32), 1, 32);
    if (t.lane == 0) store(t.outer, v);
  }
}

// Calls run(kind, base, i, length) for the chunk of this lane in each place that the warp comes to; kind is Whole where
// every lane has 8 aligned elements. begin() and end(row) stand around a lane's part of a row; fold() ends as many rows
// of a lane as it may add in float32. one_tile: the task is as wide as the warp.
template <bool one_tile, class Run, class Begin, class End, class Fold>
__device__ inline void walk(const PointwiseArguments& a, const Task& t, const Run& run, const Begin& begin,
                            const End& end, const Fold& fold) {
  const int64_t width = int64_t{t.lanes} * 8, column = t.first_column + (t.lane % t.lanes) * 8;
  const int64_t base = t.outer * a.tasks.rows * a.tasks.columns;
  const auto partial = [&](int64_t row, int64_t c) {
    const int64_t left = row < t.end_row ? t.end_column - c : 0;
    run(Partial{}, 0, base + row * a.tasks.columns + c, static_cast<int>(left < 0 ? 0 : left < 8 ? left : 8));
  };
  int64_t first = t.first_row;
  if constexpr (one_tile) {
    const int64_t together = int64_t{t.rows_at_once} * pointwise_rows_in_float32;
    const bool whole = a.wide && t.first_column + width <= t.end_column;
    for (int64_t next = first + together; first < t.end_row; next += together) {
      const int64_t stop = least(next, t.end_row);
      if (whole) {
#pragma unroll 4
        for (; first + t.rows_at_once <= stop; first += t.rows_at_once) {
          const int64_t row = first + t.lane / t.lanes;
          begin();
          run(Whole{}, 0, base + row * a.tasks.columns + column, 8);
          end(row);
        }
      }
      for (; first < stop; first += t.rows_at_once) {
        const int64_t row = first + t.lane / t.lanes;
        begin();
        partial(row, column);
        end(row);
      }
      fold();
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
