// Block-wise 8-bit storage of optimizer states (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"):
// a block of 256 neighbouring elements has one float32 scale, its largest magnitude, and one code for each element, the
// index of the nearest value of a map of 256 values in [-1, 1] or [0, 1]. This file has the two "dynamic" maps and how
// a code is found; the backends share it, so that they give the same bits.
//
// A map has 7 decades 10^-6 .. 10^0, the decade 10^d being divided evenly from a tenth of it to it: into 2^i parts,
// i = 0 .. 6 (twice as many in the unsigned map), whose middles are the values; to these come their negatives (signed
// map), 0 and 1.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LK_HOST_DEVICE __host__ __device__
#else
#define LK_HOST_DEVICE
#endif

namespace lk {

constexpr int blockwise_size = 256;  // elements of a block

// How a code is found: magnitudes are sorted into buckets by the upper 16 bits of their float32, that is 128 to an
// octave, fine enough that no bucket has more than one middle between two values of a map.
constexpr int blockwise_octaves = 23;                           // below 2^-23 the nearest value is 0, in both maps
constexpr int blockwise_buckets = blockwise_octaves * 128 + 1;  // the last begins at 1
constexpr int blockwise_first_bucket = (127 - blockwise_octaves) * 128;

struct BlockwiseMap {
  float values[256];   // by code, ascending
  float middles[256];  // by m: between the magnitudes number m and m + 1; a magnitude is number 0 where it is zero
  uint8_t first[blockwise_buckets + 3];  // by bucket: the middles below its beginning
  int32_t zero;                          // the code of 0
};

constexpr BlockwiseMap make_blockwise_map(bool is_signed) {
  BlockwiseMap map{};
  constexpr float decades[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1e0f};
  map.zero = is_signed ? 127 : 0;
  int m = 1;
  for (int i = 0; i < 7; ++i) {
    const int parts = is_signed ? 1 << i : 2 << i;
    // Edges as float32: counted from the nearer end, each rounded once. (Values in use were made with them so.)
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    float low = 0.1f;
    for (int k = 1; k <= parts; ++k, ++m) {
      const double from_low = static_cast<double>(0.1f) + static_cast<double>(step) * k;
      const double from_high = 1.0 - static_cast<double>(step) * (parts - k);
      const float high = static_cast<float>(k < (parts + 1) / 2 ? from_low : from_high);
      const float value = (low + high) / 2.0f * decades[i];
      map.values[map.zero + m] = value;
      if (is_signed) map.values[map.zero - m] = -value;
      low = high;
    }
  }
  map.values[255] = 1.0f;
  const int top = 255 - map.zero;
  for (m = 0; m < 256; ++m) {
    const double sum = m < top ? static_cast<double>(map.values[map.zero + m]) + map.values[map.zero + m + 1] : 8.0;
    map.middles[m] = static_cast<float>(sum / 2);  // beyond the last none is reached: a magnitude is about 1 at most
  }
  float octave = 1.0f / (1 << blockwise_octaves);
  m = 0;
  for (int bucket = 0; bucket < blockwise_buckets; ++bucket) {
    if (bucket > 0 && bucket % 128 == 0) octave *= 2.0f;
    const float begin = octave * (1.0f + static_cast<float>(bucket % 128) / 128.0f);
    while (m < top && map.middles[m] < begin) ++m;
    map.first[bucket] = static_cast<uint8_t>(m);
  }
  return map;
}

// The factor that brings a block into [-1, 1]. A block of zeros, and one below the normal numbers, keeps its size: what
// is lost of it is below 2^-126.
LK_HOST_DEVICE inline float blockwise_factor(float scale) {
  constexpr float smallest = 1.17549435e-38f;
  return 1.0f / (scale < smallest ? smallest : scale);
}

// The nearest code to a magnitude of at most about 1, given with its bits, and to its negative. A magnitude in the
// middle of two values takes the lower one.
LK_HOST_DEVICE inline int32_t blockwise_code(const BlockwiseMap& map, float magnitude, uint32_t bits, bool negative) {
  int32_t bucket = static_cast<int32_t>(bits >> 16) - blockwise_first_bucket;
  bucket = bucket < 0 ? 0 : bucket >= blockwise_buckets ? blockwise_buckets - 1 : bucket;
  int32_t m = map.first[bucket];
  m += magnitude > map.middles[m];
  const int32_t below = map.zero > m ? map.zero - m : 0;  // the unsigned map has nothing below 0
  return negative ? below : map.zero + m;
}

}  // namespace lk
