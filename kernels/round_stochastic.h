// Stochastic rounding of float32 to bf16: to the neighbour farther from zero with the probability that the dropped part
// is of the distance between the neighbours, so that the mean is the value (Croci et al. 2022, "Stochastic rounding",
// section 2). Adding 16 random bits to the bits of the float and cutting off the lower half does it: the carry is the
// step to the farther neighbour.
#pragma once

#include "philox.h"

namespace lk {

// The bits of the bf16 of a float, given by its bits, with `word` of a random generator, of which the upper half is
// used. What fits is returned unchanged, NaN stays one.
LK_HOST_DEVICE inline uint32_t stochastic_bf16(uint32_t bits, uint32_t word) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + (word >> 16)) >> 16;
}

// Random words of elements 4 block .. 4 block + 3.
LK_HOST_DEVICE inline PhiloxBlock stochastic_words(int64_t block, int32_t step, uint64_t seed, uint64_t stream) {
  return philox(static_cast<uint32_t>(block), static_cast<uint32_t>(step), stream, seed);
}

}  // namespace lk
