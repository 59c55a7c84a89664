#include "round_stochastic.h"

#include <bit>

#include "cpu/cpu.h"

namespace lk::cpu {

void round_stochastic(Cpu& cpu, const lk_round_stochastic_params& p) {
  const int64_t count = lk_numel(&p.x), blocks = (count + 3) / 4;
  const int32_t step = *static_cast<const int32_t*>(p.step.data);
  const auto* const x = static_cast<const float*>(p.x.data);
  auto* const y = static_cast<uint16_t*>(p.y.data);
  parallel_for(cpu, blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const PhiloxBlock random = stochastic_words(block, step, p.seed, p.stream);
      for (int64_t i = 4 * block; i < std::min(count, 4 * block + 4); ++i)
        y[i] = static_cast<uint16_t>(stochastic_bf16(std::bit_cast<uint32_t>(x[i]), random.words[i % 4]));
    }
  });
}

}  // namespace lk::cpu
