// Descriptions of tensors for the bulk copies of capability 9.0.
#pragma once

#include <cuda.h>

#include "cuda/cuda.h"

namespace lk::cuda {

// Boxes of `box` numbers along axes of `dims` numbers, `pitches` bytes apart (but for the first); zeros where there are
// none. Those of 16 bits are read with the swizzle of 128 bytes, or of a line's bytes where that is 32 or 64; float32
// as it is.
template <int rank>
struct Boxes {
  cuuint64_t dims[rank], pitches[rank - 1];
  cuuint32_t box[rank];
};
template <int rank>
CUtensorMap tensor_map(const void* data, lk_dtype dtype, const Boxes<rank>& boxes) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
          "cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  cuuint32_t steps[rank];
  for (cuuint32_t& step : steps) step = 1;
  const CUtensorMapSwizzle swizzle = dtype == LK_F32      ? CU_TENSOR_MAP_SWIZZLE_NONE
                                     : boxes.box[0] == 16 ? CU_TENSOR_MAP_SWIZZLE_32B
                                     : boxes.box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                          : CU_TENSOR_MAP_SWIZZLE_128B;
  const CUtensorMapDataType type = dtype == LK_F32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : dtype == LK_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                      : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  CUtensorMap map{};
  const CUresult status = encode(&map, type, rank, const_cast<void*>(data), boxes.dims, boxes.pitches, boxes.box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) throw Error(LK_E_DEVICE, "cuTensorMapEncodeTiled: " + std::to_string(status));
  return map;
}

}  // namespace lk::cuda
