// A rectangular block of x [...] into y [...], row by row; trailing axes that the block spans whole in both tensors
// make the rows longer.
#include <algorithm>
#include <cstring>

#include "cpu/convert.h"
#include "lines.h"

namespace lk::cpu {

void copy_block(Cpu& cpu, const lk_copy_block_params& p) {
  const int64_t size = lk_dtype_size(p.x.dtype), step = std::max<int64_t>(p.x_step, 1);
  int64_t x_strides[LK_MAX_RANK], y_strides[LK_MAX_RANK], x_start = 0, y_start = 0;  // in bytes
  strides_of(p.x, x_strides);
  strides_of(p.y, y_strides);
  for (int32_t i = 0; i < p.x.rank; ++i) {
    x_start += p.x_offset[i] * (x_strides[i] *= size);
    y_start += p.y_offset[i] * (y_strides[i] *= size);
  }
  if (p.x.rank > 0) x_strides[p.x.rank - 1] *= step;
  int32_t axis = p.x.rank;  // rows are made of axes [axis, rank)
  int64_t row_bytes = size;
  bool whole = step == 1;
  while (axis > 0 && whole) {
    --axis;
    row_bytes *= p.extent[axis];
    whole = p.extent[axis] == p.x.dims[axis] && p.extent[axis] == p.y.dims[axis];
    if (axis > 0) whole = whole && x_strides[axis - 1] == row_bytes && y_strides[axis - 1] == row_bytes;
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
