// The narrower ones of product_tiles.cuh.
#include "cuda/product_tiles.cuh"

namespace lk::cuda::product {

template Tile<1> tile_of<96, 1>(lk_dtype, bool, bool);
template Tile<LK_LORA_GROUP_MAX> tile_of<96, LK_LORA_GROUP_MAX>(lk_dtype, bool, bool);
template Tile<1> tile_of<128, 1>(lk_dtype, bool, bool);
template Tile<LK_LORA_GROUP_MAX> tile_of<128, LK_LORA_GROUP_MAX>(lk_dtype, bool, bool);
template Tile<1> tile_of<160, 1>(lk_dtype, bool, bool);
template Tile<LK_LORA_GROUP_MAX> tile_of<160, LK_LORA_GROUP_MAX>(lk_dtype, bool, bool);

}  // namespace lk::cuda::product
