#include "core/swap_axes.h"

#include <algorithm>

#include "core/error.h"
#include "core/parallel.h"

namespace lh {
namespace {

template <typename T>
void swapped(int64_t outer, int64_t a, int64_t b, const std::byte* from, std::byte* to) {
  const auto* const source = reinterpret_cast<const T*>(from);
  auto* const target = reinterpret_cast<T*>(to);
  // By rows of the result, of which a matrix has many, too.
  constexpr int64_t numbers_of_a_thread = int64_t{1} << 18;
  in_threads(outer * b, numbers_of_a_thread / std::max<int64_t>(a, 1), [&](int64_t first, int64_t end) {
    for (int64_t row = first; row < end; ++row) {
      const T* const column = source + row / b * a * b + row % b;
      for (int64_t i = 0; i < a; ++i) target[row * a + i] = column[i * b];
    }
  });
}

}  // namespace

void swap_axes(int64_t outer, int64_t a, int64_t b, int64_t size, const std::byte* from, std::byte* to) {
  switch (size) {
    case 1: return swapped<uint8_t>(outer, a, b, from, to);
    case 2: return swapped<uint16_t>(outer, a, b, from, to);
    case 4: return swapped<uint32_t>(outer, a, b, from, to);
    case 8: return swapped<uint64_t>(outer, a, b, from, to);
    default: fail(Code::internal, "numbers of {} bytes", size);
  }
}

}  // namespace lh
