// Dropout factors from Philox-4x32-10 (Salmon et al. 2011), a counter-based generator: element i is word i % 4 of the
// block with counter (i / 4, step, stream low, stream high) and key = seed, whatever thread computes it. An element
// is dropped where its word is below p 2^32.
#include <cmath>

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

struct Block {
  uint32_t words[4];
};

Block philox(Block counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.words[0], b = uint64_t{0xCD9E8D57u} * counter.words[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.words[1] ^ key0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.words[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace

void dropout_mask(Cpu& cpu, const lk_dropout_mask_params& p) {
  const int64_t count = numel(p.y), blocks = (count + 3) / 4;
  const auto step = static_cast<uint32_t>(*static_cast<const int32_t*>(p.step.data));
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  const auto threshold = static_cast<uint64_t>(std::llround(std::ldexp(static_cast<double>(p.p), 32)));
  const float kept = static_cast<float>(1.0 / (1.0 - static_cast<double>(p.p)));
  const FloatOut y(cpu, p.y);
  parallel_for(cpu, blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Block counter{{static_cast<uint32_t>(i), step, low(p.stream), high(p.stream)}};
      const Block random = philox(counter, low(p.seed), high(p.seed));
      for (int64_t j = 4 * i; j < std::min(count, 4 * i + 4); ++j) {
        y[j] = random.words[j % 4] < threshold ? 0.0f : kept;
      }
    }
  });
}

}  // namespace lk::cpu
