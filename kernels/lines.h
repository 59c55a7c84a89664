// How a tensor with strides lies in memory (lora_kernels.h, "Lines").
#pragma once

#include <cstdint>
#include <optional>

#include "lora_kernels.h"

namespace lk {

// `line` neighbouring elements, each line `pitch` elements after the one before.
struct Lines {
  int64_t line, pitch;
  bool dense() const { return line == pitch; }
};

// nullopt: strides of another form. The strides of axes with one element mean nothing.
inline std::optional<Lines> lines_of(const lk_tensor& t) {
  bool given = false;
  for (int32_t i = 0; i < t.rank; ++i) given = given || t.strides[i] != 0;
  const int64_t count = lk_numel(&t);
  if (!given) return Lines{count, count};
  int64_t line = 1, i = t.rank - 1;
  for (; i >= 0 && (t.dims[i] == 1 || t.strides[i] == line); --i) line *= t.dims[i];
  if (i < 0) return Lines{count, count};
  const int64_t pitch = t.strides[i];
  if (pitch < line) return std::nullopt;
  for (int64_t next = pitch; i >= 0; --i) {
    if (t.dims[i] != 1 && t.strides[i] != next) return std::nullopt;
    next *= t.dims[i];
  }
  return Lines{line, pitch};
}

inline bool is_dense(const lk_tensor& t) {
  const std::optional<Lines> lines = lines_of(t);
  return lines && lines->dense();
}

// Elements from the first to behind the last.
inline int64_t extent_of(const lk_tensor& t, const Lines& lines) {
  return (lk_numel(&t) / lines.line - 1) * lines.pitch + lines.line;
}

// From one element to the next along each axis.
inline void strides_of(const lk_tensor& t, int64_t (&strides)[LK_MAX_RANK]) {
  const bool dense = is_dense(t);
  int64_t next = 1;
  for (int32_t i = t.rank - 1; i >= 0; --i) {
    strides[i] = dense ? next : t.strides[i];
    next *= t.dims[i];
  }
}

// So many columns of the last axis, where they are.
inline lk_tensor columns_of(const lk_tensor& t, int64_t from, int64_t count) {
  lk_tensor columns = t;
  if (count == t.dims[t.rank - 1]) return columns;
  strides_of(t, columns.strides);
  columns.data = static_cast<char*>(t.data) + from * lk_dtype_size(t.dtype);
  columns.dims[t.rank - 1] = count;
  return columns;
}

}  // namespace lk
