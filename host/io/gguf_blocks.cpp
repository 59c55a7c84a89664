#include "io/gguf_blocks.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "core/float_formats.h"

namespace lh {
namespace {

float half_at(const uint8_t* at) { return float_from_f16(static_cast<uint16_t>(at[0] | at[1] << 8)); }
int signed_at(const uint8_t* at) { return static_cast<int8_t>(*at); }
int low(uint8_t byte) { return byte & 15; }
int high(uint8_t byte) { return byte >> 4; }

constexpr int block = 32, super_block = 256;

// Blocks of 32: the first half of the values are the lower halves of bytes, the second the upper ones.
template <class Value>
void halves(const uint8_t* codes, float* values, const Value& value) {
  for (int i = 0; i < block / 2; ++i) {
    values[i] = value(low(codes[i]), i);
    values[i + block / 2] = value(high(codes[i]), i + block / 2);
  }
}

// d [f16], codes
void q4_0(const uint8_t* from, float* values) {
  const float d = half_at(from);
  halves(from + 2, values, [&](int code, int) { return d * static_cast<float>(code - 8); });
}
// d, m [f16], codes
void q4_1(const uint8_t* from, float* values) {
  const float d = half_at(from), m = half_at(from + 2);
  halves(from + 4, values, [&](int code, int) { return d * static_cast<float>(code) + m; });
}

// The fifth bits of 32 codes.
struct FifthBits {
  uint32_t bits = 0;
  explicit FifthBits(const uint8_t* at) { std::memcpy(&bits, at, sizeof bits); }
  int of(int i) const { return static_cast<int>(bits >> i & 1) << 4; }
};

// d [f16], fifth bits, codes
void q5_0(const uint8_t* from, float* values) {
  const float d = half_at(from);
  const FifthBits fifth(from + 2);
  halves(from + 6, values, [&](int code, int i) { return d * static_cast<float>((code | fifth.of(i)) - 16); });
}
// d, m [f16], fifth bits, codes
void q5_1(const uint8_t* from, float* values) {
  const float d = half_at(from), m = half_at(from + 2);
  const FifthBits fifth(from + 4);
  halves(from + 8, values, [&](int code, int i) { return d * static_cast<float>(code | fifth.of(i)) + m; });
}
// d [f16], 32 int8
void q8_0(const uint8_t* from, float* values) {
  const float d = half_at(from);
  for (int i = 0; i < block; ++i) values[i] = d * static_cast<float>(signed_at(from + 2 + i));
}

// Levels of the codes of IQ4.
constexpr std::array<float, 16> levels{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
float level(int code) { return levels[static_cast<size_t>(code)]; }

// d [f16], codes
void iq4_nl(const uint8_t* from, float* values) {
  const float d = half_at(from);
  halves(from + 2, values, [&](int code, int) { return d * level(code); });
}

// d [f16], the upper 2 bits of 8 scales, their lower 4 bits, for each of them 16 bytes of codes
void iq4_xs(const uint8_t* from, float* values) {
  const float d = half_at(from);
  const int upper = from[2] | from[3] << 8;
  for (int part = 0; part < super_block / block; ++part) {
    const int four = part % 2 == 0 ? low(from[4 + part / 2]) : high(from[4 + part / 2]);
    const float scale = d * static_cast<float>((four | (upper >> 2 * part & 3) << 4) - 32);
    halves(from + 8 + part * 16, values + part * block, [&](int code, int) { return scale * level(code); });
  }
}

// A byte for each 16: scale below, minimum above; codes of 2 bits; d, dmin [f16]. 32 bytes of codes have 128 values:
// those of their lowest two bits, then of the next, and so on.
void q2_k(const uint8_t* from, float* values) {
  const uint8_t* const codes = from + 16;
  const float d = half_at(from + 80), minimum = half_at(from + 82);
  for (int i = 0; i < super_block; ++i) {
    const uint8_t scale = from[i / 16];
    const int code = codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    values[i] =
        d * static_cast<float>(low(scale)) * static_cast<float>(code) - minimum * static_cast<float>(high(scale));
  }
}

// Third bits, where 0 takes 4 away; codes of 2 bits as those of Q2_K; 16 scales of 6 bits: their lower 4 bits, then
// their upper 2; d [f16].
void q3_k(const uint8_t* from, float* values) {
  const uint8_t *const codes = from + 32, *const scales = from + 96;
  const float d = half_at(from + 108);
  for (int i = 0; i < super_block; ++i) {
    const int part = i / 16;
    const int four = part < 8 ? low(scales[part]) : high(scales[part - 8]);
    const int two = scales[8 + part % 4] >> (part / 4 * 2) & 3;
    const int code = codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const bool third = (from[i % 32] >> (i / 32) & 1) != 0;
    values[i] = d * static_cast<float>((four | two << 4) - 32) * static_cast<float>(code - (third ? 0 : 4));
  }
}

// Eight scales and minima of 6 bits in 12 bytes.
struct ScaleAndMinimum {
  int scale, minimum;
  ScaleAndMinimum(const uint8_t* from, int part) {
    if (part < 4) {
      scale = from[part] & 63;
      minimum = from[part + 4] & 63;
    } else {
      scale = low(from[part + 4]) | from[part - 4] >> 6 << 4;
      minimum = high(from[part + 4]) | from[part] >> 6 << 4;
    }
  }
};

// d, dmin [f16], scales and minima, codes: 32 bytes have 64 values, those of the lower halves first. `fifth` is 16
// where code i has a fifth bit.
template <class Fifth>
void scaled_fours(const uint8_t* from, const uint8_t* codes, float* values, const Fifth& fifth) {
  const float d = half_at(from), minimum = half_at(from + 2);
  for (int part = 0; part < super_block / block; ++part) {
    const ScaleAndMinimum own(from + 4, part);
    const float scale = d * static_cast<float>(own.scale), below = minimum * static_cast<float>(own.minimum);
    for (int i = 0; i < block; ++i) {
      const uint8_t two = codes[part / 2 * 32 + i];
      const int code = (part % 2 == 0 ? low(two) : high(two)) | fifth(part, i);
      values[part * block + i] = scale * static_cast<float>(code) - below;
    }
  }
}
void q4_k(const uint8_t* from, float* values) {
  scaled_fours(from, from + 16, values, [](int, int) { return 0; });
}
// With 32 bytes of fifth bits in front of the codes: bit `part` of byte i.
void q5_k(const uint8_t* from, float* values) {
  scaled_fours(from, from + 48, values, [&](int part, int i) { return (from[16 + i] >> part & 1) << 4; });
}

// Lower 4 bits: 64 bytes have 128 values, those of the lower halves first; upper 2 bits as the codes of Q2_K; 16 int8
// scales; d [f16].
void q6_k(const uint8_t* from, float* values) {
  const uint8_t *const upper = from + 128, *const scales = from + 192;
  const float d = half_at(from + 208);
  for (int i = 0; i < super_block; ++i) {
    const uint8_t two = from[i / 128 * 64 + i % 64];
    const int four = i % 128 < 64 ? low(two) : high(two);
    const int above = upper[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    values[i] = d * static_cast<float>(signed_at(scales + i / 16)) * static_cast<float>((four | above << 4) - 32);
  }
}

constexpr std::array<BlockFormat, 12> formats{{{2, "Q4_0", block, 18, q4_0},
                                               {3, "Q4_1", block, 20, q4_1},
                                               {6, "Q5_0", block, 22, q5_0},
                                               {7, "Q5_1", block, 24, q5_1},
                                               {8, "Q8_0", block, 34, q8_0},
                                               {10, "Q2_K", super_block, 84, q2_k},
                                               {11, "Q3_K", super_block, 110, q3_k},
                                               {12, "Q4_K", super_block, 144, q4_k},
                                               {13, "Q5_K", super_block, 176, q5_k},
                                               {14, "Q6_K", super_block, 210, q6_k},
                                               {20, "IQ4_NL", block, 18, iq4_nl},
                                               {23, "IQ4_XS", super_block, 136, iq4_xs}}};

struct PlainType {
  uint32_t type;
  std::string_view name;
  DType dtype;
};
constexpr std::array<PlainType, 3> plain{{{0, "F32", DType::f32}, {1, "F16", DType::f16}, {30, "BF16", DType::bf16}}};

// Without use here.
constexpr std::array<std::pair<uint32_t, std::string_view>, 18> others{{{9, "Q8_1"},
                                                                        {15, "Q8_K"},
                                                                        {16, "IQ2_XXS"},
                                                                        {17, "IQ2_XS"},
                                                                        {18, "IQ3_XXS"},
                                                                        {19, "IQ1_S"},
                                                                        {21, "IQ3_S"},
                                                                        {22, "IQ2_S"},
                                                                        {24, "I8"},
                                                                        {25, "I16"},
                                                                        {26, "I32"},
                                                                        {27, "I64"},
                                                                        {28, "F64"},
                                                                        {29, "IQ1_M"},
                                                                        {34, "TQ1_0"},
                                                                        {35, "TQ2_0"},
                                                                        {39, "MXFP4"},
                                                                        {40, "NVFP4"}}};

}  // namespace

const BlockFormat* block_format(uint32_t type) {
  for (const BlockFormat& format : formats)
    if (format.type == type) return &format;
  return nullptr;
}

std::optional<DType> plain_type(uint32_t type) {
  for (const PlainType& known : plain)
    if (known.type == type) return known.dtype;
  return std::nullopt;
}

std::string known_gguf_types() {
  std::string text;
  const auto add = [&](std::string_view name) { text.append(text.empty() ? "" : ", ").append(name); };
  for (const PlainType& known : plain) add(known.name);
  for (const BlockFormat& format : formats) add(format.name);
  return text;
}

std::string gguf_type_text(uint32_t type) {
  for (const auto& [known, name] : others)
    if (known == type) return fmt::format("{} ({})", name, type);
  return fmt::format("of number {}", type);
}

}  // namespace lh
