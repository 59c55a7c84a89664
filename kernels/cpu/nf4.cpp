#include "cpu/nf4.h"

#include "cpu/blockwise.h"
#include "nf4_format.h"

namespace lk::cpu {

void widen_nf4(const Cpu& cpu, const lk_tensor& weight, const lk_tensor& scale, float* values) {
  const int64_t rows = weight.dims[0], cols = weight.dims[1], row_blocks = nf4_row_blocks(cols);
  const Nf4Scale factors(scale.data, rows * row_blocks);
  const float* const map = blockwise_map(true).values;
  const auto* const codes = static_cast<const uint8_t*>(weight.data);
  parallel_for(cpu, rows, cols, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const uint8_t* const from = codes + row * nf4_row_bytes(cols);
      float* const to = values + row * cols;
      for (int64_t block = 0; block < row_blocks; ++block) {
        const float factor = factors.factor(map, row * row_blocks + block);
        const int64_t last = std::min(cols, (block + 1) * nf4_block);
        for (int64_t i = block * nf4_block; i < last; ++i) to[i] = nf4_levels.values[nf4_code(from, i)] * factor;
      }
    }
  });
}

}  // namespace lk::cpu
