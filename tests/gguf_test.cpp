// GGUF files: every type against a second reading of its layout in float64, what is refused, and that a model of codes
// trains as the same values in safetensors do.
#include "io/gguf.h"

#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "core/float_formats.h"
#include "io/gguf_blocks.h"
#include "io/weight_files.h"
#include "lora/merge_checkpoint.h"
#include "support/gguf_file.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::gguf_test {
namespace {

using namespace test;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// ---- types

double half(const uint8_t* at) {
  return static_cast<double>(float_from_f16(static_cast<uint16_t>(at[0] + 256 * at[1])));
}

constexpr std::array<int, 16> curve{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// A value as scale * code - offset, in float64.
struct Term {
  double scale = 0, code = 0, offset = 0;
  double value() const { return scale * code - offset; }
};

// The scale (0) or minimum (1) of part 0 to 7 from 12 bytes, read as one number of 96 bits: six bits of bytes 0 to 3
// and 4 to 7, and for parts 4 to 7 the nibbles of bytes 8 to 11 below the two bits that the former leave.
int six_bits(const uint8_t* at, int part, int which) {
  const int own = 4 * which + part % 4;
  if (part < 4) return at[own] % 64;
  const int nibble = which == 0 ? at[8 + part % 4] % 16 : at[8 + part % 4] / 16;
  return at[own] / 64 * 16 + nibble;
}

// What element i of a block is, found by walking through it as the format's description does.
Term term_of(std::string_view name, const uint8_t* b, int i) {
  const auto nibble = [&](const uint8_t* codes, int at) { return at < 16 ? codes[at] % 16 : codes[at - 16] / 16; };
  if (name == "Q4_0") return {half(b), nibble(b + 2, i) - 8.0};
  if (name == "Q4_1") return {half(b), nibble(b + 4, i) + 0.0, -half(b + 2)};
  if (name == "Q5_0") return {half(b), nibble(b + 6, i) + (b[2 + i / 8] >> i % 8) % 2 * 16 - 16.0};
  if (name == "Q5_1") return {half(b), nibble(b + 8, i) + (b[4 + i / 8] >> i % 8) % 2 * 16.0, -half(b + 2)};
  if (name == "Q8_0") return {half(b), std::bit_cast<int8_t>(b[2 + i]) + 0.0};
  if (name == "IQ4_NL") return {half(b), curve[static_cast<size_t>(nibble(b + 2, i))] + 0.0};
  if (name == "IQ4_XS") {
    const int part = i / 32, lower = part % 2 == 0 ? b[4 + part / 2] % 16 : b[4 + part / 2] / 16;
    const int upper = (b[2 + part / 4] >> 2 * (part % 4)) % 4;
    return {half(b) * (lower + 16 * upper - 32), curve[static_cast<size_t>(nibble(b + 8 + 16 * part, i % 32))] + 0.0};
  }
  // Of 256: halves of 128, each of four quarters that share bytes.
  const int part_of_half = i % 128, quarter = part_of_half / 32, lane = i % 32;
  if (name == "Q2_K") {
    const int code = (b[16 + i / 128 * 32 + lane] >> 2 * quarter) % 4;
    return {half(b + 80) * (b[i / 16] % 16), code + 0.0, half(b + 82) * (b[i / 16] / 16)};
  }
  if (name == "Q3_K") {
    const int part = i / 16, bit = (b[lane] >> i / 32) % 2, code = (b[32 + i / 128 * 32 + lane] >> 2 * quarter) % 4;
    const int lower = part < 8 ? b[96 + part] % 16 : b[96 + part - 8] / 16;
    const int upper = (b[104 + part % 4] >> 2 * (part / 4)) % 4;
    return {half(b + 108) * (lower + 16 * upper - 32), code + 4 * bit - 4.0};
  }
  if (name == "Q6_K") {
    const int byte = b[i / 128 * 64 + i % 64], lower = part_of_half < 64 ? byte % 16 : byte / 16;
    const int upper = (b[128 + i / 128 * 32 + lane] >> 2 * quarter) % 4;
    return {half(b + 208) * std::bit_cast<int8_t>(b[192 + i / 16]), lower + 16 * upper - 32.0};
  }
  const int part = i / 32;  // Q4_K and Q5_K
  const bool fifth = name == "Q5_K";
  const int byte = b[(fifth ? 48 : 16) + part / 2 * 32 + lane];
  const int code = (part % 2 == 0 ? byte % 16 : byte / 16) + (fifth ? (b[16 + lane] >> part) % 2 * 16 : 0);
  return {half(b) * six_bits(b + 4, part, 0), code + 0.0, half(b + 2) * six_bits(b + 4, part, 1)};
}

constexpr std::array<uint32_t, 12> block_types{2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23};

// Where a block of the type has numbers of float16, of which no exponent may be all ones.
std::vector<int64_t> halves_in(std::string_view name) {
  if (name == "Q2_K") return {80, 82};
  if (name == "Q3_K") return {108};
  if (name == "Q6_K") return {208};
  if (name == "Q4_1" || name == "Q5_1" || name == "Q4_K" || name == "Q5_K") return {0, 2};
  return {0};
}

std::string random_blocks(const BlockFormat& format, int64_t count, std::mt19937& random) {
  std::string data(static_cast<size_t>(count * format.bytes), '\0');
  for (char& c : data) c = static_cast<char>(random());
  for (int64_t block = 0; block < count; ++block)
    for (const int64_t at : halves_in(format.name)) data[static_cast<size_t>(block * format.bytes + at + 1)] &= ~0x40;
  return data;
}

class GgufTypes : public testing::TestWithParam<uint32_t> {};

TEST_P(GgufTypes, AreWhatTheirLayoutSays) {
  const BlockFormat& format = *block_format(GetParam());
  std::mt19937 random(GetParam());
  constexpr int64_t rows = 3;
  const int64_t row = 5 * format.elements;
  const std::string data = random_blocks(format, rows * 5, random);
  const TempDir dir;
  put(dir / "a.gguf", GgufFile().add({"x", {rows, row}, format.type, data}).bytes());
  const Gguf file(dir / "a.gguf");
  const StoredTensor& stored = *file.find("x");
  EXPECT_EQ(stored.desc, (Desc{DType::f32, {rows, row}}));
  EXPECT_EQ(stored_type_name(stored), format.name);
  EXPECT_EQ(stored_bytes(stored), static_cast<int64_t>(data.size()));
  const HostTensor values = file.read("x");
  for (int64_t i = 0; i < rows * row; ++i) {
    const auto* block = reinterpret_cast<const uint8_t*>(data.data()) + i / format.elements * format.bytes;
    const Term want = term_of(format.name, block, static_cast<int>(i % format.elements));
    // Four operations in float32 at most: scale, its product with the code, offset, their difference.
    const double bound = 4 * 0x1p-24 * (std::abs(want.scale * want.code) + std::abs(want.offset)) + 4 * 0x1p-150;
    ASSERT_NEAR(static_cast<double>(values.as<float>()[static_cast<size_t>(i)]), want.value(), bound) << i;
  }
}

TEST_P(GgufTypes, AreReadInPartsToo) {
  const BlockFormat& format = *block_format(GetParam());
  std::mt19937 random(1);
  const int64_t count = 7 * format.elements;
  const TempDir dir;
  put(dir / "a.gguf",
      GgufFile().add({"x", {7, format.elements}, format.type, random_blocks(format, 7, random)}).bytes());
  const Gguf file(dir / "a.gguf");
  const HostTensor whole = file.read("x");
  for (int turn = 0; turn < 200; ++turn) {
    const auto first = static_cast<int64_t>(random()) % count,
               some = static_cast<int64_t>(random()) % (count - first + 1);
    std::vector<std::byte> part(static_cast<size_t>(some * 4 + 1));
    file.read_part(*file.find("x"), first * 4, std::span(part).subspan(1));  // where no float can lie
    ASSERT_EQ(std::memcmp(part.data() + 1, whole.data.data() + first * 4, static_cast<size_t>(some * 4)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufTypes, testing::ValuesIn(block_types),
                         [](const auto& type) { return std::string(block_format(type.param)->name); });

// Worked by hand: d = 0.5, codes 0 to 15 in the lower halves and 15 down to 0 in the upper ones.
TEST(Gguf, OneBlockByHand) {
  std::string block = bytes_of_number(uint16_t{0x3800});
  for (int i = 0; i < 16; ++i) block += static_cast<char>(i | (15 - i) << 4);
  const TempDir dir;
  put(dir / "a.gguf", GgufFile().add({"x", {32}, 2, block}).bytes());
  const HostTensor values = Gguf(dir / "a.gguf").read("x");
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values.as<float>()[i], (static_cast<float>(i) - 8) / 2);
    EXPECT_EQ(values.as<float>()[16 + i], (7 - static_cast<float>(i)) / 2);
  }
}

TEST(Gguf, PlainTypesAreReadAsTheyAre) {
  const TempDir dir;
  GgufFile made;
  const std::array<std::pair<uint32_t, DType>, 3> plain{{{0, DType::f32}, {1, DType::f16}, {30, DType::bf16}}};
  for (const auto& [type, dtype] : plain) {
    const HostTensor values = as_type(counting({3, 5}), dtype);
    made.add({std::string(dtype_name(dtype)),
              {3, 5},
              type,
              {reinterpret_cast<const char*>(values.data.data()), values.data.size()}});
  }
  put(dir / "a.gguf", made.bytes());
  const Gguf file(dir / "a.gguf");
  for (const auto& [type, dtype] : plain) {
    EXPECT_EQ(file.read(std::string(dtype_name(dtype))).desc, (Desc{dtype, {3, 5}}));
    EXPECT_EQ(file.read(std::string(dtype_name(dtype))).data, as_type(counting({3, 5}), dtype).data);
  }
}

// ---- headers

std::string zeros(int64_t rows) { return std::string(static_cast<size_t>(rows * 34), '\0'); }
GgufFile one() { return GgufFile().add({"x", {2, 32}, 8, zeros(2)}); }

TEST(Gguf, MetadataAndShapesOfBefore) {
  const TempDir dir;
  put(dir / "a.gguf", GgufFile()
                          .text("general.architecture", "flux")
                          .number("general.file_type", 7)
                          .words("tokenizer.ggml.tokens", {"a", "\xff", ""})
                          .list("comfy.gguf.orig_shape.x", {4, 4, 2, 2})
                          .add({"x", {2, 32}, 8, zeros(2)})
                          .bytes());
  const FilePtr file = open_weight_file(dir / "a.gguf");
  EXPECT_EQ(file->metadata(),
            (std::map<std::string, std::string>{{"general.architecture", "flux"}, {"general.file_type", "7"}}));
  EXPECT_EQ(file->find("x")->desc.shape, (Shape{4, 4, 2, 2}));
  EXPECT_EQ(file->fingerprint().size(), 64u);
}

struct Bad {
  const char* what;
  std::string bytes;
  const char* text;
};

TEST(Gguf, RefusesWhatIsWrong) {
  GgufFile turned = one(), first = one(), wide = one(), odd = one();
  turned.version = 0x03000000;
  first.version = 1;
  wide.alignment = 64;
  odd.alignment = 16;
  const std::string whole = one().bytes();
  std::string many = whole, overlapping = one().add({"y", {1, 32}, 8, zeros(1)}).bytes();
  many[8 + 7] = 1;
  overlapping.replace(overlapping.find("y") + 1 + 4 + 16 + 4, 8, bytes_of_number(uint64_t{32}));
  const std::vector<Bad> cases{
      {"turned", turned.bytes(), "a big-endian file"},
      {"version 1", first.bytes(), "version 1, expected 2 or 3"},
      {"many tensors", many, "tensors, expected at most 65536"},
      {"twice", one().add({"x", {1, 32}, 8, zeros(1)}).bytes(), "tensor \"x\" twice"},
      {"key twice", one().number("a", 1).number("a", 2).bytes(), "metadata key \"a\" twice"},
      {"type", GgufFile().add({"x", {1, 256}, 17, std::string(74, '\0')}).bytes(),
       "tensor \"x\" is IQ2_XS (17), expected one of F32, F16, BF16, Q4_0"},
      {"unknown type", GgufFile().add({"x", {1, 256}, 77, std::string(74, '\0')}).bytes(), "of number 77"},
      {"row", GgufFile().add({"x", {32, 2}, 8, zeros(2)}).bytes(), "Q8_0 in rows of 2, expected a multiple of 32"},
      {"overlap", overlapping, "tensor \"y\" starts at byte"},
      {"no axis", GgufFile().add({"x", {0, 32}, 8, ""}).bytes(), "an axis of no length"},
      {"overflow", GgufFile().add({"x", {int64_t{1} << 40, int64_t{1} << 40}, 8, ""}).bytes(), "overflows 64 bits"},
      {"axes", GgufFile().add({"x", {1, 1, 1, 1, 1, 1, 1, 1, 32}, 8, zeros(1)}).bytes(), "of 9 axes"},
      {"alignment", one().number("general.alignment", 48).bytes(), "general.alignment 48, expected a power of two"},
      {"not aligned", odd.number("general.alignment", 64).add({"y", {1, 32}, 8, zeros(1)}).bytes(),
       "expected a multiple of 64"},
      {"shape", one().list("comfy.gguf.orig_shape.x", {3, 3}).bytes(), "which is not [3, 3]"},
      {"no tensor", one().list("comfy.gguf.orig_shape.z", {3, 3}).bytes(), "is the shape of no tensor"},
      {"name", GgufFile().add({"\xff", {32}, 8, zeros(1)}).bytes(), "byte 0 is not valid UTF-8"},
  };
  const TempDir dir;
  for (const Bad& bad : cases) {
    put(dir / "a.gguf", bad.bytes);
    EXPECT_THAT(error_of([&] { Gguf(dir / "a.gguf"); }), HasSubstr(bad.text)) << bad.what;
  }
  put(dir / "a.gguf", wide.number("general.alignment", 64).add({"y", {1, 32}, 8, zeros(1)}).bytes());
  EXPECT_EQ(error_of([&] { Gguf(dir / "a.gguf"); }), "");
}

TEST(Gguf, RefusesFilesCutAtEveryByte) {
  const TempDir dir;
  const std::string whole = GgufFile().text("k", "v").words("w", {"a", "bc"}).add({"x", {2, 32}, 8, zeros(2)}).bytes();
  for (size_t size = 4; size < whole.size(); ++size) {
    put(dir / "a.gguf", whole.substr(0, size));
    EXPECT_THAT(error_of([&] { Gguf(dir / "a.gguf"); }), HasSubstr("download it again")) << size;
  }
}

TEST(Gguf, FlippedBytesNeverCrash) {
  const TempDir dir;
  std::mt19937 random(7);
  const std::string whole = GgufFile()
                                .text("general.architecture", "flux")
                                .list("comfy.gguf.orig_shape.x", {8, 8})
                                .words("w", {"a", "bc"})
                                .add({"x", {2, 32}, 8, zeros(2)})
                                .add({"y", {256}, 12, std::string(144, '\1')})
                                .bytes();
  for (int turn = 0; turn < 3000; ++turn) {
    std::string bytes = whole;
    for (int flips = 1 + turn % 3; flips > 0; --flips)
      bytes[4 + random() % (bytes.size() - 4)] = static_cast<char>(random());
    put(dir / "a.gguf", bytes);
    error_of([&] {
      const Gguf file(dir / "a.gguf");
      for (const StoredTensor& tensor : file.tensors()) file.read(tensor.name);
    });
  }
}

// ---- models

// A file's tensors as a GGUF file has them: matrices whose rows blocks divide in `type`, the others as they are.
GgufFile gguf_of(const fs::path& path, uint32_t type, const std::function<std::string(const std::string&)>& name) {
  GgufFile made;
  made.text("general.architecture", "flux");
  for (const Given& given : tensors_of(path)) {
    const HostTensor values = as_type(given.tensor, DType::f32);
    const Shape& shape = values.desc.shape;
    const bool codes = shape.rank() == 2 && shape[1] % 32 == 0;
    const std::string plain(reinterpret_cast<const char*>(values.data.data()), values.data.size());
    made.add({name(given.name),
              {shape.dims().begin(), shape.dims().end()},
              codes ? type : 0,
              !codes      ? plain
              : type == 8 ? encode_q8_0(values)
                          : encode_q4_0(values)});
  }
  return made;
}

// The same values in a safetensors file.
void write_decoded(const fs::path& from, const fs::path& to, const std::vector<Given>& names) {
  const Gguf file(from);
  std::vector<Given> decoded;
  for (size_t i = 0; i < file.tensors().size(); ++i)
    decoded.push_back({names[i].name, file.read(file.tensors()[i].name)});
  write_file(to, decoded);
}

// As ggml's tools call T5's tensors.
std::string ggml_name(std::string name) {
  const std::vector<std::pair<std::string, std::string>> parts{
      {"shared", "token_embd"},
      {"encoder.final_layer_norm", "enc.output_norm"},
      {"encoder.block.", "enc.blk."},
      {"layer.0.SelfAttention.relative_attention_bias", "attn_rel_b"},
      {"layer.0.SelfAttention.", "attn_"},
      {"layer.0.layer_norm", "attn_norm"},
      {"layer.1.layer_norm", "ffn_norm"},
      {"layer.1.DenseReluDense.wi_0", "ffn_gate"},
      {"layer.1.DenseReluDense.wi_1", "ffn_up"},
      {"layer.1.DenseReluDense.wo", "ffn_down"}};
  for (const auto& [from, to] : parts)
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  return name;
}

TEST(Gguf, TrainsAsTheSameValuesDo) {
  ToyRun codes, decoded;
  const std::string model = (toy_folder() / "flux_toy.safetensors").string(),
                    t5 = (toy_folder() / "t5xxl.safetensors").string();
  put(codes.folder() / "model.gguf", gguf_of(model, 2, [](const std::string& name) { return name; }).bytes());
  put(codes.folder() / "t5.gguf", gguf_of(t5, 8, ggml_name).bytes());
  write_decoded(codes.folder() / "model.gguf", decoded.folder() / "model.safetensors", tensors_of(model));
  write_decoded(codes.folder() / "t5.gguf", decoded.folder() / "t5.safetensors", tensors_of(t5));
  codes.replace(model, (codes.folder() / "model.gguf").string()).replace(t5, (codes.folder() / "t5.gguf").string());
  decoded.replace(model, (decoded.folder() / "model.safetensors").string())
      .replace(t5, (decoded.folder() / "t5.safetensors").string());
  for (ToyRun* run : {&codes, &decoded}) expect_trained(run->set("steps", "3").train());
  const std::vector<Given> got = tensors_of(codes.lora()), want = tensors_of(decoded.lora());
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].tensor.data, want[i].tensor.data) << got[i].name;
  const HostResult seen = run_host({"inspect", (codes.folder() / "model.gguf").string()});
  EXPECT_EQ(seen.code, 0) << seen.output;
  EXPECT_THAT(seen.output, testing::AllOf(HasSubstr(" Q4_0"), HasSubstr("flux"), HasSubstr("general.architecture")));
  const HostResult merged =
      run_host({"merge", "--into", "checkpoint", "--model", (codes.folder() / "model.gguf").string(), "--lora",
                codes.lora().string(), "--out", (codes.folder() / "merged.safetensors").string()});
  EXPECT_EQ(merged.code, 3) << merged.output;
  EXPECT_THAT(merged.output, HasSubstr("GGUF files are only read"));
  EXPECT_FALSE(fs::exists(codes.folder() / "merged.safetensors"));
}

}  // namespace
}  // namespace lh::gguf_test
