// y = x with axes reordered, by element size. Axes of size 1 are dropped and runs of axes that stay together are
// joined. If the last axis stays last, rows are copied; otherwise the plane of the two axes that are contiguous in x
// and in y is transposed in tiles that both fit the cache.
#include <cstring>

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

constexpr int64_t tile = 32;

struct Axis {
  int64_t size, x_stride, y_stride;
};

std::vector<Axis> joined_axes(const lk_permute_params& p) {
  int64_t x_strides[LK_MAX_RANK], stride = 1;
  for (int32_t i = p.x.rank - 1; i >= 0; --i) {
    x_strides[i] = stride;
    stride *= p.x.dims[i];
  }
  std::vector<Axis> axes;  // in the order of y
  stride = numel(p.x);
  for (int32_t i = 0; i < p.x.rank; ++i) {
    const int64_t size = p.y.dims[i], x_stride = x_strides[p.axes[i]];
    stride /= size;
    if (size == 1) continue;
    if (!axes.empty() && axes.back().x_stride == x_stride * size) {
      axes.back() = {axes.back().size * size, x_stride, stride};
    } else {
      axes.push_back({size, x_stride, stride});
    }
  }
  if (axes.empty()) axes.push_back({1, 1, 1});
  return axes;
}

template <class T>
void transpose(const T* x, int64_t x_stride, int64_t y_stride, int64_t rows, int64_t cols, T* y) {
  // y[c * y_stride + r] = x[r * x_stride + c]
  for (int64_t r0 = 0; r0 < rows; r0 += tile) {
    for (int64_t c0 = 0; c0 < cols; c0 += tile) {
      for (int64_t c = c0; c < std::min(cols, c0 + tile); ++c) {
        for (int64_t r = r0; r < std::min(rows, r0 + tile); ++r) y[c * y_stride + r] = x[r * x_stride + c];
      }
    }
  }
}

template <class T>
void permute_elements(const Cpu& cpu, std::vector<Axis> axes, const T* x, T* y) {
  const Axis last = axes.back();
  axes.pop_back();
  Axis across{1, 0, 0};  // the axis contiguous in x, unless that is the last one
  if (last.x_stride != 1) {
    const auto found = std::find_if(axes.begin(), axes.end(), [](const Axis& a) { return a.x_stride == 1; });
    across = *found;
    axes.erase(found);
  }
  int64_t outer = 1;
  for (const Axis& axis : axes) outer *= axis.size;
  parallel_for(cpu, outer, last.size * across.size, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, from = 0, to = 0;
      for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
        from += rest % axis->size * axis->x_stride;
        to += rest % axis->size * axis->y_stride;
        rest /= axis->size;
      }
      if (last.x_stride == 1) {
        std::memcpy(y + to, x + from, static_cast<size_t>(last.size) * sizeof(T));
      } else {
        transpose(x + from, last.x_stride, across.y_stride, last.size, across.size, y + to);
      }
    }
  });
}

template <class T>
void permute_as(const Cpu& cpu, const lk_permute_params& p) {
  permute_elements(cpu, joined_axes(p), static_cast<const T*>(p.x.data), static_cast<T*>(p.y.data));
}

}  // namespace

void permute(Cpu& cpu, const lk_permute_params& p) {
  switch (lk_dtype_size(p.x.dtype)) {
    case 1: return permute_as<uint8_t>(cpu, p);
    case 2: return permute_as<uint16_t>(cpu, p);
    case 4: return permute_as<uint32_t>(cpu, p);
    default: return permute_as<uint64_t>(cpu, p);
  }
}

}  // namespace lk::cpu
