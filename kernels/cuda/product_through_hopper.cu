// The tiles of product_through.cuh.
#include "cuda/product_through.cuh"

namespace lk::cuda::product {

template Tile<1> through_tile_of<96, 1>(lk_dtype, bool, int64_t);
template Tile<LK_LORA_GROUP_MAX> through_tile_of<96, LK_LORA_GROUP_MAX>(lk_dtype, bool, int64_t);
template Tile<1> through_tile_of<128, 1>(lk_dtype, bool, int64_t);
template Tile<LK_LORA_GROUP_MAX> through_tile_of<128, LK_LORA_GROUP_MAX>(lk_dtype, bool, int64_t);
template Tile<1> through_tile_of<160, 1>(lk_dtype, bool, int64_t);
template Tile<LK_LORA_GROUP_MAX> through_tile_of<160, LK_LORA_GROUP_MAX>(lk_dtype, bool, int64_t);

}  // namespace lk::cuda::product
