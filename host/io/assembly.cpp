// Makes canonical tensors: chunked reads, fast conversion by tables, scales, row orders, channels-last.
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "core/swap_axes.h"
#include "io/component.h"

namespace lh {
namespace {

constexpr int64_t chunk_bytes = 16 << 20;
constexpr int64_t least_elements = 1 << 16;  // that a thread converts

// Converts runs of elements from one type to another, times a factor. Small source types go through a table of all
// their values, made with lh::convert, so that both ways round alike.
class Converter {
 public:
  Converter(DType from, DType to, int64_t count) : from_(from), to_(to) {
    const bool float_to_float = is_float(from) && is_float(to);
    codes_ = !float_to_float || from == to || widens_bf16() ? 0
             : dtype_size(from) == 1                        ? 256
             : dtype_size(from) == 2 && count > 1 << 18     ? 65536
                                                            : 0;
    set_factor(1.0f);
  }

  void set_factor(float factor) {
    factor_ = factor;
    if (codes_ == 0 && factor != 1.0f && dtype_size(from_) == 1) codes_ = 256;
    if (codes_ == 0) return;
    std::vector<uint16_t> wide(codes_);
    std::vector<uint8_t> narrow(codes_);
    for (size_t i = 0; i < codes_; ++i) wide[i] = static_cast<uint16_t>(i), narrow[i] = static_cast<uint8_t>(i);
    table_.resize(codes_ * static_cast<size_t>(dtype_size(to_)));
    multiply(codes_ == 256 ? static_cast<const void*>(narrow.data()) : wide.data(), table_.data(),
             static_cast<int64_t>(codes_));
  }

  void run(const std::byte* src, std::byte* dst, int64_t count) const {
    if (codes_ == 0) return multiply(src, dst, count);
    switch (dtype_size(to_)) {
      case 1: return look_up<uint8_t>(src, dst, count);
      case 2: return look_up<uint16_t>(src, dst, count);
      default: return look_up<uint32_t>(src, dst, count);
    }
  }

 private:
  template <typename Out>
  void look_up(const std::byte* src, std::byte* dst, int64_t count) const {
    const auto* table = reinterpret_cast<const Out*>(table_.data());
    auto* out = reinterpret_cast<Out*>(dst);
    if (codes_ == 256) {
      for (int64_t i = 0; i < count; ++i) out[i] = table[static_cast<uint8_t>(src[i])];
    } else {
      const auto* in = reinterpret_cast<const uint16_t*>(src);
      for (int64_t i = 0; i < count; ++i) out[i] = table[in[i]];
    }
  }

  bool widens_bf16() const { return from_ == DType::bf16 && to_ == DType::f32; }

  void multiply(const void* src, void* dst, int64_t count) const {
    if (factor_ == 1.0f && widens_bf16()) {
      const auto* in = static_cast<const uint16_t*>(src);
      auto* out = static_cast<float*>(dst);
      for (int64_t i = 0; i < count; ++i) out[i] = float_from_bf16(in[i]);
      return;
    }
    if (factor_ == 1.0f && from_ == DType::f32 && (to_ == DType::f16 || to_ == DType::bf16)) {
      const auto* in = static_cast<const float*>(src);
      auto* out = static_cast<uint16_t*>(dst);
      const bool half = to_ == DType::f16;
      for (int64_t i = 0; i < count; ++i) out[i] = half ? f16_from_float(in[i]) : bf16_from_float(in[i]);
      return;
    }
    if (factor_ == 1.0f) return convert(from_, src, to_, dst, count);
    std::vector<float> values(static_cast<size_t>(count));
    convert(from_, src, DType::f32, values.data(), count);
    for (float& v : values) v *= factor_;
    convert(DType::f32, values.data(), to_, dst, count);
  }

  DType from_, to_;
  float factor_ = 1.0f;
  size_t codes_ = 0;  // entries of the table, 0 for none
  std::vector<std::byte> table_;
};

// Elements [first, first + count) of the stored tensor, converted.
void read_elements(const ScaledKey& piece, int64_t first, int64_t count, DType to, std::byte* out) {
  const StoredTensor& tensor = *piece.weight.tensor;
  const DType from = tensor.desc.dtype;
  const int64_t size = dtype_size(from), to_size = dtype_size(to);
  const std::vector<float> scales = scale_values(piece);
  if (from == to && scales.empty())
    return piece.weight.file->read_part(tensor, first * size, {out, static_cast<size_t>(count * size)});
  Converter converter(from, to, count);
  if (scales.size() == 1) converter.set_factor(scales[0]);
  const int64_t row = scales.size() > 1 ? tensor.desc.shape.with(0, 1).numel() : 0;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(count * size, chunk_bytes)));
  while (count > 0) {
    int64_t n = std::min(count, chunk_bytes / size);
    if (row > 0) {
      n = std::min(n, row - first % row);
      converter.set_factor(scales[static_cast<size_t>(first / row)]);
    }
    piece.weight.file->read_part(tensor, first * size, {buffer.data(), static_cast<size_t>(n * size)});
    in_threads(n, least_elements, [&](int64_t begin, int64_t end) {
      converter.run(buffer.data() + begin * size, out + begin * to_size, end - begin);
    });
    first += n, count -= n, out += n * to_size;
  }
}

// [O, I, K...] -> [O, K..., I], or the transpose of a matrix.
void reorder(const Shape& in, bool transpose, int64_t element, const std::byte* from, std::byte* to) {
  const int64_t outer = transpose ? 1 : in[0], a = transpose ? in[0] : in[1];
  swap_axes(outer, a, in.numel() / std::max<int64_t>(outer * a, 1), element, from, to);
}

// The values in float32, changed, then converted.
void read_changed(const Assembly& recipe, const std::string& name, DType dtype, bool channels_last,
                  std::span<std::byte> out, const ChangeValues& change) {
  const Shape& shape = recipe.desc.shape;
  const int64_t count = shape.numel();
  const std::unique_ptr<float[]> values(new float[static_cast<size_t>(count)]);  // all of it is written
  const std::span wide(values.get(), static_cast<size_t>(count));
  read_assembly(recipe, name, DType::f32, false, std::as_writable_bytes(wide));
  change(wide);
  const auto* from = reinterpret_cast<const std::byte*>(values.get());
  const Converter converter(DType::f32, dtype, count);
  if (!channels_last || shape.rank() < 3) return converter.run(from, out.data(), count);
  const std::unique_ptr<std::byte[]> ordered(new std::byte[out.size()]);
  converter.run(from, ordered.get(), count);
  reorder(shape, false, dtype_size(dtype), ordered.get(), out.data());
}

}  // namespace

void read_assembly(const Assembly& recipe, const std::string& name, DType dtype, bool channels_last,
                   std::span<std::byte> out, const ChangeValues& change) {
  const Shape& shape = recipe.desc.shape;
  const int64_t size = dtype_size(dtype), bytes = checked_mul(shape.numel(), size);
  if (static_cast<int64_t>(out.size()) != bytes)
    fail(Code::internal, "weight \"{}\" {} as {} has {} bytes, the buffer {}", name, shape.text(), dtype_name(dtype),
         bytes, out.size());
  if (change) return read_changed(recipe, name, dtype, channels_last, out, change);
  const bool transpose = recipe.assemble == Assemble::transpose,
             ordered = !transpose && (!channels_last || shape.rank() < 3);
  const std::unique_ptr<std::byte[]> scratch(ordered ? nullptr : new std::byte[out.size()]);
  std::byte* target = ordered ? out.data() : scratch.get();
  for (const ScaledKey& piece : recipe.pieces) {
    const int64_t count = piece.weight.tensor->desc.shape.numel() / recipe.parts;
    if (recipe.assemble == Assemble::swap_halves) {
      read_elements(piece, count / 2, count / 2, dtype, target);
      read_elements(piece, 0, count / 2, dtype, target + count / 2 * size);
    } else {
      read_elements(piece, recipe.part * count, count, dtype, target);
    }
    target += count * size;
  }
  if (ordered) return;
  reorder(transpose ? Shape{shape[1], shape[0]} : shape, transpose, size, scratch.get(), out.data());
}

}  // namespace lh
