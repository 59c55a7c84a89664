// Weights of few bits: brought as they are stored, or rounded when they are read.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"
#include "io/component.h"
#include "io/quantise.h"

namespace lh {
namespace {

// Whether the float32 numbers of a scale are finite, which they are where the values were.
bool finite_scale(DType dtype, std::span<const std::byte> scale) {
  const int64_t floats = dtype == DType::nf4 ? 1 : static_cast<int64_t>(scale.size() / sizeof(float));
  return count_non_finite(DType::f32, scale.data(), floats) == 0;
}

}  // namespace

std::optional<WeightForm> stored_fp8(const Assembly& recipe) {
  const DType dtype = recipe.pieces.front().weight.tensor->desc.dtype;
  const bool rows_in_order = recipe.assemble == Assemble::copy || recipe.assemble == Assemble::concat_rows;
  if (!rows_in_order || !is_fp8(dtype)) return std::nullopt;
  int64_t factors = 0;
  for (const ScaledKey& piece : recipe.pieces) {
    if (piece.weight.tensor->desc.dtype != dtype) return std::nullopt;
    if (piece.scale) factors = std::max(factors, piece.scale->tensor->desc.shape.numel());
  }
  if (factors > 1) factors /= recipe.parts;
  if (factors > 0 && recipe.pieces.size() > 1) factors = recipe.desc.shape[0];  // each piece has its own
  return WeightForm{dtype, factors};
}

void read_stored_fp8(const Assembly& recipe, std::span<std::byte> codes, std::span<float> factors) {
  for (const ScaledKey& piece : recipe.pieces) {
    const Desc& desc = piece.weight.tensor->desc;
    const int64_t bytes = desc.bytes() / recipe.parts;
    piece.weight.file->read_part(*piece.weight.tensor, recipe.part * bytes, codes.first(static_cast<size_t>(bytes)));
    codes = codes.subspan(static_cast<size_t>(bytes));
    if (factors.empty()) continue;
    const std::vector<float> scale = scale_values(piece);
    const std::span<float> own = recipe.pieces.size() > 1 ? factors.first(static_cast<size_t>(desc.shape[0])) : factors;
    factors = factors.subspan(own.size());
    if (scale.size() > 1)  // one for each row
      std::ranges::copy(std::span(scale).subspan(static_cast<size_t>(recipe.part) * own.size(), own.size()),
                        own.begin());
    else
      std::ranges::fill(own, scale.empty() ? 1.0f : scale[0]);
  }
}

void read_rounded(const Assembly& recipe, const std::string& name, DType dtype, std::span<std::byte> codes,
                  std::span<std::byte> scale, const ChangeValues& change) {
  const Shape& shape = recipe.desc.shape;
  const auto count = static_cast<size_t>(shape.numel());
  const std::unique_ptr<float[]> memory(new float[count]);  // left as it is: everything is written
  const std::span<float> values(memory.get(), count);
  read_assembly(recipe, name, DType::f32, false, std::as_writable_bytes(values), change);
  if (dtype == DType::nf4)
    quantise_nf4(values, shape[0], codes, scale);
  else
    quantise_rows(dtype, values, codes, {reinterpret_cast<float*>(scale.data()), scale.size() / sizeof(float)});
  if (finite_scale(dtype, scale)) return;
  const auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  fail(Code::data,
       "{}: \"{}\": row {} has an infinity or NaN, which cannot be rounded to {}. The file is damaged: fetch it again",
       recipe.pieces.front().weight.file->path().string(), name, (bad - values.begin()) / shape[1], dtype_name(dtype));
}

}  // namespace lh
