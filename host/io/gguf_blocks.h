// Codes of GGUF files: blocks of 32 or 256 neighbours in a row, each with factors of its own. The layouts are those of
// ggml (ggml-common.h, ggml-quants.c of llama.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/tensor.h"

namespace lh {

struct BlockFormat {
  uint32_t type;            // ggml_type
  std::string_view name;    // "Q4_K"
  int64_t elements, bytes;  // of a block
  // In IEEE float32, each operation rounded: the same values on every machine.
  void (*decode)(const uint8_t* block, float* values);

  int64_t stored_bytes(int64_t count) const { return checked_mul(count / elements, bytes); }
};

inline constexpr int64_t longest_block = 256;

// Nothing for types that are not blocks, or not known.
const BlockFormat* block_format(uint32_t type);
// F32, F16 and BF16, which are read as they are.
std::optional<DType> plain_type(uint32_t type);
// "F32, F16, ..., IQ4_XS", for error texts.
std::string known_gguf_types();
// "IQ2_XS (17)", of types without use here too.
std::string gguf_type_text(uint32_t type);

}  // namespace lh
