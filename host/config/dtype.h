// Element types as configurations name them.
#pragma once

#include <optional>
#include <string>

#include "core/tensor.h"

namespace lh {

DType compute_dtype(const std::string& name);  // "bf16", "fp16", "fp32" and their long names
// What weights are rounded to when they are read: "float8_e4m3", "int8", "nf4"; nothing for any other.
std::optional<DType> quantised_dtype(const std::string& name);

}  // namespace lh
