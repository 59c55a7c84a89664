// Every element of y = value, rounded to its type.
#include "cpu/convert.h"
#include "cpu/formats.h"

namespace lk::cpu {

namespace {

template <class T>
void fill_as(const Cpu& cpu, T value, const lk_tensor& y) {
  T* const data = static_cast<T*>(y.data);
  parallel_for(cpu, numel(y), 1, [=](int64_t begin, int64_t end) { std::fill(data + begin, data + end, value); });
}

}  // namespace

void fill(Cpu& cpu, const lk_fill_params& p) {
  const float value = static_cast<float>(p.value);
  switch (p.y.dtype) {
    case LK_F32: return fill_as(cpu, value, p.y);
    case LK_F16: return fill_as(cpu, static_cast<uint16_t>(Float16::narrow(value)), p.y);
    case LK_BF16: return fill_as(cpu, static_cast<uint16_t>(BFloat16::narrow(value)), p.y);
    case LK_F8_E4M3: return fill_as(cpu, static_cast<uint8_t>(FloatE4M3::narrow(value)), p.y);
    case LK_F8_E5M2: return fill_as(cpu, static_cast<uint8_t>(FloatE5M2::narrow(value)), p.y);
    case LK_I32: return fill_as(cpu, static_cast<int32_t>(p.value), p.y);
    case LK_I64: return fill_as(cpu, static_cast<int64_t>(p.value), p.y);
    case LK_I8: return fill_as(cpu, static_cast<int8_t>(p.value), p.y);
    default: return fill_as(cpu, static_cast<uint8_t>(p.value), p.y);
  }
}

}  // namespace lk::cpu
