// A rectangular block of x [...] into y [...], row by row; trailing axes that the block spans whole in both tensors
// make the rows longer.
#include <algorithm>
#include <cstring>

#include "cpu/convert.h"

namespace lk::cpu {

void copy_block(Cpu& cpu, const lk_copy_block_params& p) {
  const int64_t size = lk_dtype_size(p.x.dtype), step = std::max<int64_t>(p.x_step, 1);
  int64_t x_strides[LK_MAX_RANK + 1], y_strides[LK_MAX_RANK + 1], x_start = 0, y_start = 0;  // in bytes
  x_strides[p.x.rank] = y_strides[p.x.rank] = size;
  for (int32_t i = p.x.rank - 1; i >= 0; --i) {
    x_strides[i] = i == p.x.rank - 1 ? size : x_strides[i + 1] * p.x.dims[i + 1];
    y_strides[i] = i == p.x.rank - 1 ? size : y_strides[i + 1] * p.y.dims[i + 1];
    x_start += p.x_offset[i] * x_strides[i];
    y_start += p.y_offset[i] * y_strides[i];
  }
  if (p.x.rank > 0) x_strides[p.x.rank - 1] *= step;
  int32_t axis = p.x.rank;  // rows are made of axes [axis, rank)
  int64_t row_bytes = size;
  bool whole = step == 1;
  while (axis > 0 && whole) {
    --axis;
    row_bytes *= p.extent[axis];
    whole = p.extent[axis] == p.x.dims[axis] && p.extent[axis] == p.y.dims[axis];
  }
  int64_t rows = 1;
  for (int32_t i = 0; i < axis; ++i) rows *= p.extent[i];
  if (rows == 0 || row_bytes == 0) return;
  const auto* const x = static_cast<const char*>(p.x.data) + x_start;
  auto* const y = static_cast<char*>(p.y.data) + y_start;
  parallel_for(cpu, rows, row_bytes / 4 + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, from = 0, to = 0;
      for (int32_t i = axis - 1; i >= 0; --i) {
        from += rest % p.extent[i] * x_strides[i];
        to += rest % p.extent[i] * y_strides[i];
        rest /= p.extent[i];
      }
      std::memcpy(y + to, x + from, static_cast<size_t>(row_bytes));
    }
  });
}

}  // namespace lk::cpu
