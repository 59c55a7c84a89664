#include "config/dtype.h"

#include "core/error.h"

namespace lh {

DType compute_dtype(const std::string& name) {
  if (name == "bf16" || name == "bfloat16") return DType::bf16;
  if (name == "fp16" || name == "float16") return DType::f16;
  if (name == "fp32" || name == "float32" || name == "float") return DType::f32;
  fail(Code::config, "dtype '{}' is not bf16, fp16 or fp32", name);
}

std::optional<DType> quantised_dtype(const std::string& name) {
  for (const DType dtype : {DType::f8_e4m3, DType::i8, DType::nf4})
    if (name == dtype_name(dtype)) return dtype;
  return std::nullopt;
}

}  // namespace lh
