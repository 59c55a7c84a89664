// Canonical values back to where a stored tensor has them: the inverse of read_assembly.
#include <algorithm>
#include <vector>

#include "core/error.h"
#include "io/component.h"

namespace lh {
namespace {

// [rows, columns] to [columns, rows].
std::vector<float> transposed(std::span<const float> in, const Shape& shape) {
  const auto rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
  std::vector<float> out(in.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) out[c * rows + r] = in[r * columns + c];
  return out;
}

}  // namespace

void put_piece(const Assembly& recipe, size_t piece, std::span<const float> canonical, std::span<float> stored) {
  std::vector<float> turned;
  if (recipe.assemble == Assemble::transpose) {
    turned = transposed(canonical, recipe.desc.shape);
    canonical = turned;
  }
  const auto elements = [&](size_t i) {
    return static_cast<size_t>(recipe.pieces[i].weight.tensor->desc.shape.numel() / recipe.parts);
  };
  size_t first = 0;
  for (size_t i = 0; i < piece; ++i) first += elements(i);
  const size_t count = elements(piece);
  if (first + count > canonical.size() || count * static_cast<size_t>(recipe.parts) != stored.size())
    fail(Code::internal, "{} values for piece {} of a tensor {}", stored.size(), piece, recipe.desc.text());
  const std::span<const float> own = canonical.subspan(first, count);
  const std::span<float> place = stored.subspan(static_cast<size_t>(recipe.part) * count, count);
  if (recipe.assemble == Assemble::swap_halves) {
    std::ranges::copy(own.first(count / 2), place.begin() + static_cast<std::ptrdiff_t>(count / 2));
    std::ranges::copy(own.subspan(count / 2), place.begin());
  } else {
    std::ranges::copy(own, place.begin());
  }
}

}  // namespace lh
