// Philox-4x32-10 (Salmon et al. 2011), a counter-based generator: the same counter and key give the same four words on
// every backend and thread.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LK_HOST_DEVICE __host__ __device__
#else
#define LK_HOST_DEVICE
#endif

namespace lk {

struct PhiloxBlock {
  uint32_t words[4];
};

// Counter (index, step, stream low, stream high), key = seed.
LK_HOST_DEVICE inline PhiloxBlock philox(uint32_t index, uint32_t step, uint64_t stream, uint64_t seed) {
  PhiloxBlock counter{{index, step, static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)}};
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.words[0], b = uint64_t{0xCD9E8D57u} * counter.words[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.words[1] ^ key0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.words[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// A float in (0, 1), from the upper 24 bits: the middle of one of 2^24 equal parts, so that its logarithm is finite.
LK_HOST_DEVICE inline float philox_uniform(uint32_t word) {
  return (static_cast<float>(word >> 8) + 0.5f) * 5.9604644775390625e-8f;
}

}  // namespace lk
