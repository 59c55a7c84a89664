// Conversion of storage types through float (through int64 between integers), in runs that stay in the cache.
// Floats to integers round to nearest even and saturate; NaN becomes 0. A scale multiplies the value.
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

constexpr int64_t run = 1024;

bool is_integer(lk_dtype dtype) { return dtype == LK_I32 || dtype == LK_I64 || dtype == LK_U8 || dtype == LK_I8; }

int64_t load_integer(const void* data, lk_dtype dtype, int64_t i) {
  switch (dtype) {
    case LK_I32: return static_cast<const int32_t*>(data)[i];
    case LK_I64: return static_cast<const int64_t*>(data)[i];
    case LK_I8: return static_cast<const int8_t*>(data)[i];
    default: return static_cast<const uint8_t*>(data)[i];
  }
}

template <class T>
T saturated(int64_t value) {
  return static_cast<T>(std::clamp<int64_t>(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

void store_integer(void* data, lk_dtype dtype, int64_t i, int64_t value) {
  switch (dtype) {
    case LK_I32: static_cast<int32_t*>(data)[i] = saturated<int32_t>(value); break;
    case LK_I64: static_cast<int64_t*>(data)[i] = value; break;
    case LK_I8: static_cast<int8_t*>(data)[i] = saturated<int8_t>(value); break;
    default: static_cast<uint8_t*>(data)[i] = saturated<uint8_t>(value); break;
  }
}

int64_t rounded(float value) {
  constexpr float limit = 9223372036854775808.0f;  // 2^63
  if (std::isnan(value)) return 0;
  if (value >= limit) return std::numeric_limits<int64_t>::max();
  if (value < -limit) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(std::nearbyint(value));
}

}  // namespace

void cast(Cpu& cpu, const lk_cast_params& p) {
  const int64_t count = numel(p.x);
  if (p.x.dtype == LK_NF4) {
    const FloatIn values(cpu, p.x, p.scale);
    return narrow(cpu, values, p.y.data, p.y.dtype, count);
  }
  const int64_t per_factor = present(p.scale) ? count / numel(p.scale) : count;
  const float* const factors = static_cast<const float*>(p.scale.data);
  const bool from_integer = is_integer(p.x.dtype), to_integer = is_integer(p.y.dtype);
  const Cpu one_thread(1);  // for the conversions inside a run
  if (from_integer && to_integer && factors == nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      store_integer(p.y.data, p.y.dtype, i, load_integer(p.x.data, p.x.dtype, i));
    }
    return;
  }
  const auto* const src = static_cast<const char*>(p.x.data);
  auto* const dst = static_cast<char*>(p.y.data);
  const int64_t src_size = lk_dtype_size(p.x.dtype), dst_size = lk_dtype_size(p.y.dtype);
  parallel_for(cpu, (count + run - 1) / run, run, [&](int64_t first, int64_t last) {
    float values[run];
    for (int64_t begin = first * run; begin < std::min(count, last * run); begin += run) {
      const int64_t n = std::min(run, count - begin);
      if (from_integer) {
        for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(load_integer(src, p.x.dtype, begin + i));
      } else {
        widen(one_thread, src + begin * src_size, p.x.dtype, values, n);
      }
      if (factors != nullptr) {
        for (int64_t i = 0; i < n; ++i) values[i] *= factors[(begin + i) / per_factor];
      }
      if (to_integer) {
        for (int64_t i = 0; i < n; ++i) store_integer(dst, p.y.dtype, begin + i, rounded(values[i]));
      } else {
        narrow(one_thread, values, dst + begin * dst_size, p.y.dtype, n);
      }
    }
  });
}

}  // namespace lk::cpu
