// Ranges of elements on all threads.
#include "cpu/convert.h"

#include <cstring>

#include "cpu/formats.h"
#include "cpu/nf4.h"
#include "lines.h"

namespace lk::cpu {

namespace {

template <class Format, class Code>
void widen_range(const void* src, float* dst, int64_t begin, int64_t end) {
  const Code* const codes = static_cast<const Code*>(src);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) dst[i] = Format::widen(codes[i]);
}

template <class Format, class Code>
void narrow_range(const float* src, void* dst, int64_t begin, int64_t end) {
  Code* const codes = static_cast<Code*>(dst);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) codes[i] = static_cast<Code>(Format::narrow(src[i]));
}

void widen_some(const void* src, lk_dtype dtype, float* dst, int64_t begin, int64_t end) {
  switch (dtype) {
    case LK_F32:
      std::memcpy(dst + begin, static_cast<const float*>(src) + begin, static_cast<size_t>(end - begin) * 4);
      break;
    case LK_F16: widen_range<Float16, uint16_t>(src, dst, begin, end); break;
    case LK_BF16: widen_range<BFloat16, uint16_t>(src, dst, begin, end); break;
    case LK_F8_E4M3: widen_range<FloatE4M3, uint8_t>(src, dst, begin, end); break;
    case LK_F8_E5M2: widen_range<FloatE5M2, uint8_t>(src, dst, begin, end); break;
    case LK_I8: widen_range<Integer8, int8_t>(src, dst, begin, end); break;
    default: break;  // integer tensors never come here: arguments were checked
  }
}

void narrow_some(const float* src, void* dst, lk_dtype dtype, int64_t begin, int64_t end) {
  switch (dtype) {
    case LK_F32:
      std::memcpy(static_cast<float*>(dst) + begin, src + begin, static_cast<size_t>(end - begin) * 4);
      break;
    case LK_F16: narrow_range<Float16, uint16_t>(src, dst, begin, end); break;
    case LK_BF16: narrow_range<BFloat16, uint16_t>(src, dst, begin, end); break;
    case LK_F8_E4M3: narrow_range<FloatE4M3, uint8_t>(src, dst, begin, end); break;
    case LK_F8_E5M2: narrow_range<FloatE5M2, uint8_t>(src, dst, begin, end); break;
    default: break;
  }
}

// Calls body(place of the line in memory, where its elements begin in a dense tensor, how many) for every line.
template <class Body>
void each_line(const Cpu& cpu, const lk_tensor& t, const Lines& lines, const Body& body) {
  const int64_t step = lines.pitch * lk_dtype_size(t.dtype);
  parallel_for(cpu, numel(t) / lines.line, lines.line, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(static_cast<std::byte*>(t.data) + i * step, i * lines.line, lines.line);
  });
}

void widen(const Cpu& cpu, const lk_tensor& t, const Lines& lines, float* dst) {
  if (lines.dense()) return widen(cpu, t.data, t.dtype, dst, numel(t));
  each_line(cpu, t, lines,
            [&](const void* line, int64_t at, int64_t count) { widen_some(line, t.dtype, dst + at, 0, count); });
}

}  // namespace

void widen(const Cpu& cpu, const void* src, lk_dtype dtype, float* dst, int64_t count) {
  parallel_for(cpu, count, 1, [=](int64_t begin, int64_t end) { widen_some(src, dtype, dst, begin, end); });
}

void narrow(const Cpu& cpu, const float* src, void* dst, lk_dtype dtype, int64_t count) {
  parallel_for(cpu, count, 1, [=](int64_t begin, int64_t end) { narrow_some(src, dst, dtype, begin, end); });
}

FloatIn::FloatIn(Cpu& cpu, const lk_tensor& tensor) : data_(static_cast<const float*>(tensor.data)) {
  if (!present(tensor)) return;
  const Lines lines = *lines_of(tensor);
  if (tensor.dtype == LK_F32 && lines.dense()) return;
  scratch_.take(cpu, numel(tensor));
  widen(cpu, tensor, lines, scratch_.data());
  data_ = scratch_.data();
}

FloatIn::FloatIn(Cpu& cpu, const lk_tensor& weight, const lk_tensor& scale)
    : FloatIn(cpu, weight.dtype == LK_NF4 ? lk_tensor{} : weight) {
  if (!present(weight)) return;
  const int64_t count = numel(weight), rows = weight.dims[0], cols = count / rows;
  if (weight.dtype == LK_NF4) {
    scratch_.take(cpu, count);
    widen_nf4(cpu, weight, scale, scratch_.data());
    data_ = scratch_.data();
    return;
  }
  if (!present(scale)) return;
  const float* const factors = static_cast<const float*>(scale.data);
  const bool per_row = numel(scale) > 1;
  if (scratch_.data() == nullptr) scratch_.take(cpu, count);
  const float* const src = data_;
  float* const dst = scratch_.data();
  parallel_for(cpu, rows, cols, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float factor = factors[per_row ? row : 0];
#pragma omp simd
      for (int64_t i = row * cols; i < (row + 1) * cols; ++i) dst[i] = src[i] * factor;
    }
  });
  data_ = dst;
}

FloatOut::FloatOut(Cpu& cpu, const lk_tensor& tensor, bool keep)
    : cpu_(cpu), tensor_(tensor), data_(static_cast<float*>(tensor.data)) {
  if (!present(tensor)) return;
  const Lines lines = *lines_of(tensor);
  if (tensor.dtype == LK_F32 && lines.dense()) return;
  scratch_.take(cpu, numel(tensor));
  data_ = scratch_.data();
  if (keep) widen(cpu, tensor, lines, data_);
}

FloatOut::~FloatOut() {
  if (scratch_.data() == nullptr) return;
  const Lines lines = *lines_of(tensor_);
  if (lines.dense()) {
    narrow(cpu_, data_, tensor_.data, tensor_.dtype, numel(tensor_));
  } else {
    each_line(cpu_, tensor_, lines,
              [&](void* line, int64_t at, int64_t count) { narrow_some(data_ + at, line, tensor_.dtype, 0, count); });
  }
}

}  // namespace lk::cpu
