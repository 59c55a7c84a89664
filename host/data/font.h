// A fixed-width bitmap font for images that the host draws: 5 x 7 dots, printable ASCII.
#pragma once

#include <cstdint>
#include <string_view>

namespace lh {

inline constexpr int64_t glyph_width = 5, glyph_height = 7;
// Whether the dot at (x, y) of a character is set; characters outside printable ASCII look like '?'.
bool glyph_dot(char character, int64_t x, int64_t y);

}  // namespace lh
