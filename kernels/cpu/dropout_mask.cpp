// Dropout factors: element i is word i % 4 of the Philox block with counter (i / 4, step, stream low, stream high) and
// key = seed, whatever thread computes it. An element is dropped where its word is below p 2^32.
#include <cmath>

#include "cpu/convert.h"
#include "philox.h"

namespace lk::cpu {

void dropout_mask(Cpu& cpu, const lk_dropout_mask_params& p) {
  const int64_t count = numel(p.y), blocks = (count + 3) / 4;
  const auto step = static_cast<uint32_t>(*static_cast<const int32_t*>(p.step.data));
  const auto threshold = static_cast<uint64_t>(std::llround(std::ldexp(static_cast<double>(p.p), 32)));
  const float kept = static_cast<float>(1.0 / (1.0 - static_cast<double>(p.p)));
  const FloatOut y(cpu, p.y);
  parallel_for(cpu, blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PhiloxBlock random = philox(static_cast<uint32_t>(i), step, p.stream, p.seed);
      for (int64_t j = 4 * i; j < std::min(count, 4 * i + 4); ++j) {
        y[j] = random.words[j % 4] < threshold ? 0.0f : kept;
      }
    }
  });
}

}  // namespace lk::cpu
