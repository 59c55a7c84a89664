// Element types as safetensors files spell them.
#pragma once

#include <array>
#include <string_view>

#include "core/tensor.h"

namespace lh {

inline constexpr int64_t safetensors_header_limit = 100'000'000;

struct StoredDType {
  std::string_view name;
  DType dtype;
};

inline constexpr std::array<StoredDType, 8> stored_dtypes{{{"F32", DType::f32},
                                                           {"F16", DType::f16},
                                                           {"BF16", DType::bf16},
                                                           {"F8_E4M3", DType::f8_e4m3},
                                                           {"F8_E5M2", DType::f8_e5m2},
                                                           {"I32", DType::i32},
                                                           {"I64", DType::i64},
                                                           {"U8", DType::u8}}};

// In the format, but without use here.
inline constexpr std::array<std::string_view, 14> foreign_dtypes{
    "BOOL", "I8", "I16",     "U16",     "U32",     "U64",         "F64",
    "C64",  "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

}  // namespace lh
