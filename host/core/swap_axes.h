// Two axes of numbers change places: between [O, I, K...] as files have weights of convolutions and [O, K..., I] as
// kernels read them, between [N, C, H, W] and [N, H, W, C], and of a matrix.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lh {

// [outer, a, b] -> [outer, b, a]; `size`: bytes of a number, 1, 2, 4 or 8.
void swap_axes(int64_t outer, int64_t a, int64_t b, int64_t size, const std::byte* from, std::byte* to);

}  // namespace lh
