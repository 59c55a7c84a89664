// What callers of the library need to make nf4 weights: the two maps, and the size of a scale.
#include "blockwise_map.h"
#include "lora_kernels.h"
#include "nf4_format.h"

namespace {

constexpr lk::BlockwiseMap maps[2] = {lk::make_blockwise_map(false), lk::make_blockwise_map(true)};

}  // namespace

int64_t lk_nf4_scale_bytes(int64_t blocks) {
  return static_cast<int64_t>(sizeof(float)) * (1 + lk::nf4_groups(blocks)) + blocks;
}

const float* lk_nf4_levels(void) { return lk::nf4_levels.values; }

const float* lk_blockwise_values(int32_t is_signed) { return maps[is_signed != 0].values; }
