// Element types as configurations name them.
#pragma once

#include <string>

#include "core/tensor.h"

namespace lh {

DType compute_dtype(const std::string& name);  // "bf16", "fp16", "fp32" and their long names

}  // namespace lh
