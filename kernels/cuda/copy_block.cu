// A rectangular block of x into y, and the copy between two layouts that it and lk_permute are made of.
#include "cuda/await_previous.cuh"
#include "cuda/copy.h"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

template <class T>
__global__ void copy_kernel(const T* x, T* y, Axes<2> axes, int64_t count) {
  await_previous();
  const int64_t inner = axes.inner();
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t row = axes.rank > 1 ? i / inner : 0, column = i - row * inner;
    int64_t at[2];
    axes.locate(row, axes.rank - 1, at);
    y[at[1] + column * axes.inner_stride(1)] = x[at[0] + column * axes.inner_stride(0)];
  }
}

template <class T>
void copy_as(Cuda& cuda, const void* x, void* y, const Axes<2>& axes) {
  const int64_t count = axes.count();
  cuda.launch(copy_kernel<T>, grid_for(cuda, count), block_threads, 0, static_cast<const T*>(x), static_cast<T*>(y),
              axes, count);
}

// Whether every row of both tensors consists of aligned units of `bytes`.
bool divides(int64_t bytes, const void* x, const void* y, int64_t element_bytes, const Axes<2>& axes) {
  const int32_t last = axes.rank - 1;
  if (axes.strides[0][last] != 1 || axes.strides[1][last] != 1) return false;
  const auto whole = [=](int64_t elements) { return elements * element_bytes % bytes == 0; };
  bool good = whole(axes.inner());
  for (int32_t i = 0; i < last; ++i) good = good && whole(axes.strides[0][i]) && whole(axes.strides[1][i]);
  const auto unit = static_cast<uintptr_t>(bytes);
  return good && reinterpret_cast<uintptr_t>(x) % unit == 0 && reinterpret_cast<uintptr_t>(y) % unit == 0;
}

}  // namespace

void copy_axes(Cuda& cuda, const void* x, void* y, int64_t element_bytes, const Axes<2>& axes) {
  int64_t bytes = 16;  // moved at a time
  while (bytes > element_bytes && !divides(bytes, x, y, element_bytes, axes)) bytes /= 2;
  const int64_t joined = bytes / element_bytes;
  const int32_t last = axes.rank - 1;
  Axes<2> units;
  for (int32_t i = 0; i < last; ++i) {
    units.add(axes.dims[i], {axes.strides[0][i] / joined, axes.strides[1][i] / joined});
  }
  units.add(axes.dims[last] / joined, {axes.strides[0][last], axes.strides[1][last]});  // 1 and 1 where joined
  switch (bytes) {
    case 1: return copy_as<uint8_t>(cuda, x, y, units);
    case 2: return copy_as<uint16_t>(cuda, x, y, units);
    case 4: return copy_as<uint32_t>(cuda, x, y, units);
    case 8: return copy_as<uint64_t>(cuda, x, y, units);
    default: return copy_as<uint4>(cuda, x, y, units);
  }
}

void copy_block(Cuda& cuda, const lk_copy_block_params& p) {
  const int64_t size = lk_dtype_size(p.x.dtype);
  int64_t x_strides[LK_MAX_RANK], y_strides[LK_MAX_RANK], x_start = 0, y_start = 0;
  strides_of(p.x, x_strides);
  strides_of(p.y, y_strides);
  for (int32_t i = 0; i < p.x.rank; ++i)
    x_start += p.x_offset[i] * x_strides[i], y_start += p.y_offset[i] * y_strides[i];
  if (p.x.rank > 0 && p.x_step > 1) x_strides[p.x.rank - 1] = p.x_step;
  Axes<2> axes;
  for (int32_t i = 0; i < p.x.rank; ++i) {
    if (p.extent[i] == 0) return;
    axes.add(p.extent[i], {x_strides[i], y_strides[i]});
  }
  copy_axes(cuda, static_cast<const char*>(p.x.data) + x_start * size, static_cast<char*>(p.y.data) + y_start * size,
            size, axes);
}

}  // namespace lk::cuda
