// Names and sizes of types.
#include "lora_kernels.h"
#include "nf4_format.h"

namespace {

constexpr struct {
  const char* name;
  int64_t size;
} dtypes[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f8_e4m3", 1}, {"f8_e5m2", 1},
              {"i32", 4}, {"i64", 8}, {"u8", 1},   {"i8", 1},      {"nf4", 0}};

bool known(lk_dtype dtype) { return dtype >= LK_F32 && dtype <= LK_NF4; }

}  // namespace

int64_t lk_dtype_size(lk_dtype dtype) { return known(dtype) ? dtypes[dtype].size : 0; }

const char* lk_dtype_name(lk_dtype dtype) { return known(dtype) ? dtypes[dtype].name : "unknown"; }

int64_t lk_numel(const lk_tensor* tensor) {
  if (tensor == nullptr) return 0;
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->rank && i < LK_MAX_RANK; ++i) count *= tensor->dims[i];
  return count;
}

int64_t lk_tensor_bytes(const lk_tensor* tensor) {
  const int64_t count = lk_numel(tensor);
  if (tensor == nullptr || tensor->dtype != LK_NF4) return tensor == nullptr ? 0 : count * lk_dtype_size(tensor->dtype);
  const int64_t width = tensor->rank > 0 && tensor->rank <= LK_MAX_RANK ? tensor->dims[tensor->rank - 1] : 0;
  return width > 0 ? count / width * lk::nf4_row_bytes(width) : 0;
}
