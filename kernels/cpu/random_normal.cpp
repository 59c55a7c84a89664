// Box-Muller (1958): two uniform words u, v give sqrt(-2 ln u) (cos 2 pi v, sin 2 pi v). Elements 4i .. 4i+3 come from
// the Philox block with counter (i, 0, stream) and key = seed.
#include <cmath>

#include "cpu/convert.h"
#include "philox.h"

namespace lk::cpu {

void random_normal(Cpu& cpu, const lk_random_normal_params& p) {
  constexpr float turn = 6.283185307179586f;
  const int64_t count = numel(p.y), blocks = (count + 3) / 4;
  const FloatOut y(cpu, p.y);
  parallel_for(cpu, blocks, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PhiloxBlock random = philox(static_cast<uint32_t>(i), 0, p.stream, p.seed);
      for (int64_t j = 4 * i; j < std::min(count, 4 * i + 4); ++j) {
        const int64_t pair = j % 4 / 2 * 2;
        const float radius = std::sqrt(-2.0f * std::log(philox_uniform(random.words[pair])));
        const float angle = turn * philox_uniform(random.words[pair + 1]);
        y[j] = p.scale * radius * (j % 2 == 0 ? std::cos(angle) : std::sin(angle));
      }
    }
  });
}

}  // namespace lk::cpu
