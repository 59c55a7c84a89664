#include "cpu/blockwise.h"

#include <bit>

#include "cpu/cpu.h"

namespace lk::cpu {

namespace {

constexpr BlockwiseMap signed_map = make_blockwise_map(true), unsigned_map = make_blockwise_map(false);

uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

}  // namespace

const BlockwiseMap& blockwise_map(bool is_signed) { return is_signed ? signed_map : unsigned_map; }

float quantize_block(const BlockwiseMap& map, const float* x, int64_t count, uint8_t* codes) {
  uint32_t largest = 0;  // floats that are not negative have the order of their bits, with NaN above all
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_bits(x[i]));
  const float scale = std::bit_cast<float>(largest), factor = blockwise_factor(scale);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = magnitude_bits(x[i] * factor);
    codes[i] = static_cast<uint8_t>(blockwise_code(map, std::bit_cast<float>(bits), bits, x[i] < 0.0f));
  }
  return scale;
}

void dequantize_block(const BlockwiseMap& map, const uint8_t* codes, float scale, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = map.values[codes[i]] * scale;
}

void quantize_blockwise(Cpu& cpu, const lk_quantize_blockwise_params& p) {
  const BlockwiseMap& map = blockwise_map(p.is_signed != 0);
  const auto* const x = static_cast<const float*>(p.x.data);
  auto* const codes = static_cast<uint8_t*>(p.codes.data);
  auto* const scales = static_cast<float*>(p.scales.data);
  const int64_t count = lk_numel(&p.x), blocks = lk_numel(&p.scales);
  parallel_for(cpu, blocks, blockwise_size, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t at = block * blockwise_size, length = std::min<int64_t>(blockwise_size, count - at);
      scales[block] = quantize_block(map, x + at, length, codes + at);
    }
  });
}

void dequantize_blockwise(Cpu& cpu, const lk_dequantize_blockwise_params& p) {
  const BlockwiseMap& map = blockwise_map(p.is_signed != 0);
  const auto* const codes = static_cast<const uint8_t*>(p.codes.data);
  const auto* const scales = static_cast<const float*>(p.scales.data);
  auto* const y = static_cast<float*>(p.y.data);
  const int64_t count = lk_numel(&p.y), blocks = lk_numel(&p.scales);
  parallel_for(cpu, blocks, blockwise_size, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t at = block * blockwise_size, length = std::min<int64_t>(blockwise_size, count - at);
      dequantize_block(map, codes + at, scales[block], length, y + at);
    }
  });
}

}  // namespace lk::cpu
