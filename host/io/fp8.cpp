// fp8 weights: brought as they are stored, or rounded to fp8 when they are read.
#include "io/fp8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "io/component.h"

namespace lh {
namespace {

constexpr float largest_e4m3 = 448;
constexpr int64_t elements_of_a_thread = 1 << 18;  // fewer are not worth starting one

void quantise_row(std::span<const float> values, std::byte* codes, float& factor) {
  // Magnitudes in the order of their bits: infinities and NaN are above everything else.
  uint32_t largest = 0;
  for (const float v : values) largest = std::max(largest, std::bit_cast<uint32_t>(v) & 0x7fffffffu);
  // A factor that is no normal number would have no finite inverse. Rows that small become zeros or nearly so.
  factor = std::bit_cast<float>(largest) / largest_e4m3;
  if (factor < std::numeric_limits<float>::min()) factor = std::numeric_limits<float>::min();
  const float inverse = 1 / factor;
  for (size_t i = 0; i < values.size(); ++i) codes[i] = std::byte{e4m3_from_bounded(values[i] * inverse)};
}

}  // namespace

void quantise_rows(std::span<const float> values, std::span<std::byte> codes, std::span<float> factors) {
  const size_t rows = factors.size(), width = values.size() / std::max<size_t>(rows, 1);
  const int64_t least = elements_of_a_thread / std::max<int64_t>(static_cast<int64_t>(width), 1) + 1;
  in_threads(static_cast<int64_t>(rows), least, [=](int64_t first, int64_t end) {
    for (auto r = static_cast<size_t>(first); r < static_cast<size_t>(end); ++r)
      quantise_row(values.subspan(r * width, width), codes.data() + r * width, factors[r]);
  });
}

std::optional<WeightForm> stored_fp8(const Assembly& recipe) {
  const DType dtype = recipe.pieces.front().weight.tensor->desc.dtype;
  const bool rows_in_order = recipe.assemble == Assemble::copy || recipe.assemble == Assemble::concat_rows;
  if (!rows_in_order || !is_fp8(dtype)) return std::nullopt;
  int64_t factors = 0;
  for (const Piece& piece : recipe.pieces) {
    if (piece.weight.tensor->desc.dtype != dtype) return std::nullopt;
    if (piece.scale) factors = std::max(factors, piece.scale->tensor->desc.shape.numel());
  }
  if (factors > 1) factors /= recipe.parts;
  if (factors > 0 && recipe.pieces.size() > 1) factors = recipe.desc.shape[0];  // each piece has its own
  return WeightForm{dtype, factors};
}

void read_stored_fp8(const Assembly& recipe, std::span<std::byte> codes, std::span<float> factors) {
  for (const Piece& piece : recipe.pieces) {
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

void read_as_fp8(const Assembly& recipe, const std::string& name, std::span<std::byte> codes, std::span<float> factors,
                 const ChangeValues& change) {
  const std::unique_ptr<float[]> values(new float[codes.size()]);  // left as it is: everything is written
  read_assembly(recipe, name, DType::f32, false,
                {reinterpret_cast<std::byte*>(values.get()), codes.size() * sizeof(float)}, change);
  quantise_rows({values.get(), codes.size()}, codes, factors);
  const auto bad = std::ranges::find_if(factors, [](float f) { return !std::isfinite(f); });
  if (bad != factors.end())
    fail(Code::data,
         "{}: \"{}\": row {} has an infinity or NaN, which cannot be rounded to fp8. The file is damaged: fetch it "
         "again",
         recipe.pieces.front().weight.file->path().string(), name, bad - factors.begin());
}

}  // namespace lh
