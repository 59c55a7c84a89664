// The wider ones of product_tiles.cuh.
#include "cuda/product_tiles.cuh"

namespace lk::cuda::product {

template Tile<1> tile_of<192, 1>(lk_dtype, bool, bool);
template Tile<LK_LORA_GROUP_MAX> tile_of<192, LK_LORA_GROUP_MAX>(lk_dtype, bool, bool);
template Tile<1> tile_of<208, 1>(lk_dtype, bool, bool);
template Tile<LK_LORA_GROUP_MAX> tile_of<208, LK_LORA_GROUP_MAX>(lk_dtype, bool, bool);
template Tile<1> tile_of<256, 1>(lk_dtype, bool, bool);
template Tile<LK_LORA_GROUP_MAX> tile_of<256, LK_LORA_GROUP_MAX>(lk_dtype, bool, bool);

}  // namespace lk::cuda::product
