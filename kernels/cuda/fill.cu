// Every element of y = value, rounded to its type. The value is repeated to 16 bytes; as an element's size divides 16
// and its address, the byte at address a is byte a % 16 of them, wherever y begins.
#include <cstring>

#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

struct alignas(16) Pattern {
  unsigned char bytes[16];
};

template <class T>
Pattern repeated(T value) {
  Pattern pattern;
  for (size_t i = 0; i < sizeof pattern; i += sizeof value) std::memcpy(pattern.bytes + i, &value, sizeof value);
  return pattern;
}

Pattern pattern_of(double value, lk_dtype dtype) {
  const float narrow = static_cast<float>(value);
  switch (dtype) {
    case LK_F32: return repeated(narrow);
    case LK_F16: return repeated(__float2half_rn(narrow));
    case LK_BF16: return repeated(__float2bfloat16_rn(narrow));
    case LK_F8_E4M3: return repeated(__nv_cvt_float_to_fp8(narrow, __NV_NOSAT, __NV_E4M3));
    case LK_F8_E5M2: return repeated(__nv_cvt_float_to_fp8(narrow, __NV_NOSAT, __NV_E5M2));
    case LK_I32: return repeated(static_cast<int32_t>(value));
    case LK_I64: return repeated(static_cast<int64_t>(value));
    case LK_I8: return repeated(static_cast<int8_t>(value));
    default: return repeated(static_cast<uint8_t>(value));
  }
}

// `bytes` bytes at y, of which the first `head` lie before a multiple of 16.
__global__ void fill_kernel(unsigned char* y, int64_t bytes, int64_t head, Pattern pattern) {
  await_previous();
  const int64_t units = (bytes - head) / 16, body_end = head + units * 16, first = thread_index();
  const uint4 unit = *reinterpret_cast<const uint4*>(pattern.bytes);
  uint4* const body = reinterpret_cast<uint4*>(y + head);
  for (int64_t i = first; i < units; i += thread_count()) body[i] = unit;
  const auto single = [&](int64_t i) { y[i] = pattern.bytes[reinterpret_cast<uintptr_t>(y + i) % 16]; };
  if (first < head) single(first);
  if (body_end + first < bytes) single(body_end + first);
}

}  // namespace

void fill(Cuda& cuda, const lk_fill_params& p) {
  const int64_t bytes = bytes_of(p.y);
  const auto beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(p.y.data) % 16);
  const int64_t head = std::min(bytes, (16 - beyond) % 16);
  cuda.launch(fill_kernel, grid_for(cuda, ceil_div(bytes, 16)), block_threads, 0, static_cast<unsigned char*>(p.y.data),
              bytes, head, pattern_of(p.value, p.y.dtype));
}

}  // namespace lk::cuda
