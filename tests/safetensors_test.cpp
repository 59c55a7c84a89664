// The reader takes what the format allows and nothing else; the writer's files pass it.
#include "io/safetensors.h"

#include <fmt/format.h>

#include <ctime>
#include <random>

#include "core/hash.h"
#include "support/io_files.h"

namespace lh::safetensors_test {
namespace {

using namespace test;

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype, shape, offsets);
}

std::string object(const std::vector<std::string>& members) { return fmt::format("{{{}}}", fmt::join(members, ",")); }

TEST(Hash, KnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256().update("a").update("bc").hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Safetensors, RoundTrip) {
  const TempDir dir;
  const auto path = dir / "a.safetensors";
  const HostTensor a = counting({2, 3}), b = as_type(counting({5}), DType::bf16), scalar = floats(Shape{}, {7});
  const HostTensor empty(Desc{DType::f16, {0, 4}});
  write_file(path, {{"a", a}, {"empty", empty}, {"\"ü\"\n", b}, {"scalar", scalar}},
             {{"format", "pt"}, {"text", "line\nü\"\\"}});
  const Safetensors file(path);
  EXPECT_EQ(file.data_start() % 8, 0);
  EXPECT_EQ(file.metadata().at("text"), "line\nü\"\\");
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.read("a").data, a.data);
  EXPECT_EQ(file.read("\"ü\"\n").data, b.data);
  EXPECT_EQ(file.read("scalar").desc, scalar.desc);
  EXPECT_EQ(file.find("empty")->desc.shape, (Shape{0, 4}));
  EXPECT_EQ(file.find("nobody"), nullptr);
  EXPECT_NE(error_of([&] { file.read("nobody"); }).find("no tensor \"nobody\""), std::string::npos);
  std::vector<std::byte> part(8);
  file.read_part(*file.find("a"), 4, part);
  EXPECT_EQ(std::memcmp(part.data(), a.data.data() + 4, 8), 0);
  EXPECT_NE(error_of([&] { file.read_part(*file.find("a"), 20, part); }), "");
}

TEST(Safetensors, EqualContentGivesEqualBytesAndFingerprints) {
  const TempDir dir;
  for (const char* name : {"a", "b"}) write_file(dir / name, {{"x", counting({100})}}, {{"k", "v"}});
  write_file(dir / "c", {{"x", counting({100}, 1)}}, {{"k", "v"}});
  EXPECT_EQ(get(dir / "a"), get(dir / "b"));
  EXPECT_EQ(Safetensors(dir / "a").fingerprint(), Safetensors(dir / "b").fingerprint());
  EXPECT_NE(Safetensors(dir / "a").fingerprint(), Safetensors(dir / "c").fingerprint());
}

TEST(Safetensors, FingerprintSamplesLargeFiles) {
  const TempDir dir;
  write_file(dir / "a", {{"x", HostTensor(Desc{DType::u8, {16 << 20}})}});
  const std::string before = Safetensors(dir / "a").fingerprint();
  std::string bytes = get(dir / "a");
  bytes[bytes.size() - 1] = 1;
  put(dir / "b", bytes);
  EXPECT_NE(Safetensors(dir / "b").fingerprint(), before);
}

struct Bad {
  const char* what;
  std::string json;
  size_t data;
  const char* text;  // in the error
};

TEST(Safetensors, RefusesMalformedHeaders) {
  const std::string a = entry("a", "F32", "2", "0,8"), b = entry("b", "U8", "4", "8,12");
  const std::vector<Bad> cases{
      {"not an object", "[1]       ", 0, "expected '{'"},
      {"leading space", " {}       ", 0, "expected '{'"},
      {"broken JSON", fmt::format("{{{},}}", a), 8, "not valid JSON"},
      {"second document", object({a}) + "{}", 8, "not valid JSON"},
      {"bad UTF-8", "{\"\xff\xfe\":1}   ", 0, "not valid JSON"},
      {"duplicate tensor", object({a, a}), 8, "key \"a\" twice"},
      {"duplicate field", R"({"a":{"dtype":"F32","dtype":"U8","shape":[2],"data_offsets":[0,8]}})", 8,
       "field \"dtype\" twice"},
      {"NUL behind", std::string("{}\0{}", 5), 0, "header byte 2: a NUL"},
      {"duplicate metadata", R"({"__metadata__":{"k":"v","k":"w"}})", 0, "metadata key \"k\" twice"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"},
      {"metadata number", R"({"__metadata__":{"k":1}})", 0, "expected a string"},
      {"metadata object", R"({"__metadata__":{"k":{}}})", 0, "expected a string"},
      {"metadata list", R"({"__metadata__":[]})", 0, "expected"},
      {"unknown field", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8, "unknown field \"x\""},
      {"missing field", R"({"a":{"dtype":"F32","shape":[2]}})", 8, "needs the fields"},
      {"tensor is a number", R"({"aaaaaa":1})", 0, "expected"},
      {"null dtype", R"({"a":{"dtype":null,"shape":[2],"data_offsets":[0,8]}})", 8, "found null"},
      {"shape text", R"({"a":{"dtype":"F32","shape":"2","data_offsets":[0,8]}})", 8, "found a string"},
      {"nested shape", R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8, "found a list"},
      {"unknown dtype", object({entry("a", "Q7", "2", "0,8")}), 8, "unknown dtype Q7"},
      {"F64", object({entry("a", "F64", "1", "0,8")}), 8, "unsupported dtype F64"},
      {"I16", object({entry("a", "I16", "4", "0,8")}), 8, "unsupported dtype I16"},
      {"BOOL", object({entry("a", "BOOL", "8", "0,8")}), 8, "unsupported dtype BOOL"},
      {"I8", object({entry("a", "I8", "8", "0,8")}), 8, "unsupported dtype I8"},
      {"negative dimension", object({entry("a", "F32", "-2", "0,8")}), 8, "negative number -2"},
      {"fraction", object({entry("a", "F32", "2.5", "0,8")}), 8, "number 2.5"},
      {"exponent", object({entry("a", "F32", "2e0", "0,8")}), 8, "number 2e0"},
      {"2^63", object({entry("a", "F32", "9223372036854775808", "0,8")}), 8, "above 2^63"},
      {"shape overflow", object({entry("a", "F32", "4194305,4194305,211106198978564", "0,16")}), 16,
       "overflows 64 bits"},
      {"size overflow", object({entry("a", "F32", "4611686018427387905", "0,4")}), 4, "overflows 64 bits"},
      {"rank 9", object({entry("a", "F32", "1,1,1,1,1,1,1,1,2", "0,8")}), 8, "more than 8 numbers"},
      {"one offset", object({entry("a", "F32", "2", "8")}), 8, "1 data_offsets"},
      {"three offsets", object({entry("a", "F32", "2", "0,8,8")}), 8, "3 data_offsets"},
      {"size mismatch", object({entry("a", "F32", "3", "0,8")}), 8, "needs 12 bytes"},
      {"offsets reversed", object({entry("a", "F32", "2", "8,0")}), 8, "needs 8 bytes"},
      {"negative offset", object({entry("a", "F32", "2", "-8,0")}), 8, "negative number -8"},
      {"overlap", object({a, entry("b", "U8", "4", "4,8")}), 8, "overlap"},
      {"same place", object({a, entry("b", "F32", "2", "0,8")}), 8, "overlap"},
      {"hole", object({a, entry("b", "U8", "4", "9,13")}), 13, "hole"},
      {"hole at the start", object({entry("a", "F32", "2", "8,16")}), 16, "hole"},
      {"empty tensor outside", object({a, entry("z", "F32", "0", "100,100")}), 8, "hole"},
      {"trailing data", object({a}), 9, "1 bytes follow the data"},
      {"polyglot", "{}        ", 50, "50 bytes follow the data"},
      {"cut short", object({a, b}), 11, "the header promises"},
  };
  const TempDir dir;
  for (const Bad& bad : cases) {
    put(dir / "bad.safetensors", raw_file(bad.json, bad.data));
    const std::string text = error_of([&] { Safetensors(dir / "bad.safetensors"); });
    EXPECT_NE(text.find(bad.text), std::string::npos) << bad.what << ": " << text;
    EXPECT_NE(text.find("bad.safetensors"), std::string::npos) << bad.what;
  }
}

TEST(Safetensors, TakesAnyOrderAndPadding) {
  const TempDir dir;
  const std::string json = object({entry("b", "U8", "4", "8,12"), entry("z", "F32", "0,3", "8,8"),
                                   entry("a", "F32", "2", "0,8"), R"("__metadata__":{"k":"v"})"}) +
                           "   \n ";
  put(dir / "a", raw_file(json, 12));
  const Safetensors file(dir / "a");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "z");
  EXPECT_EQ(file.tensors()[2].name, "b");
}

TEST(Safetensors, RefusesFilesCutAtEveryByte) {
  const TempDir dir;
  write_file(dir / "whole", {{"first", counting({4})}, {"last", counting({3})}}, {{"k", "v"}});
  const std::string bytes = get(dir / "whole");
  for (size_t n = 0; n < bytes.size(); ++n) {
    put(dir / "cut", bytes.substr(0, n));
    EXPECT_NE(error_of([&] { Safetensors(dir / "cut"); }).find("cut"), std::string::npos) << n;
  }
  put(dir / "cut", bytes.substr(0, bytes.size() - 1));
  const std::string text = error_of([&] { Safetensors(dir / "cut"); });
  EXPECT_NE(text.find(fmt::format("file ends at {} bytes but the header promises {} (last tensor last)",
                                  bytes.size() - 1, bytes.size())),
            std::string::npos)
      << text;
}

TEST(Safetensors, NamesOtherKindsOfFiles) {
  const TempDir dir;
  const std::string pad(100, '\0');
  const std::vector<std::pair<std::string, std::string>> cases{
      {std::string("PK\x03\x04\x14\0\0\0", 8) + pad, "pickle"},
      {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j" + pad, "pickle"},
      {std::string("GGUF\x03\0\0\0", 8) + pad, "GGUF"},
      {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
      {"<!DOCTYPE html><html>" + pad, "web page"},
      {std::string(64, '\xff'), "expected at most 100000000"}};
  for (const auto& [bytes, text] : cases) {
    put(dir / "model.safetensors", bytes);
    const std::string found = error_of([&] { Safetensors(dir / "model.safetensors"); });
    EXPECT_NE(found.find(text), std::string::npos) << found;
  }
  for (const char* name : {"a.ckpt", "a.pt", "a.bin", "a.pth"})
    EXPECT_NE(error_of([&] { Safetensors(dir / name); }).find("Convert it to safetensors"), std::string::npos) << name;
}

// Mutations that know the structure: values from the list that breaks parsers, at places that matter. Whatever is
// accepted must be what an independent check of the same entries accepts.
struct Planned {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;
};

bool valid(const std::vector<Planned>& plan, uint64_t data) {
  std::vector<bool> covered(data);
  std::map<std::string, int> names;
  uint64_t total = 0;
  for (const Planned& p : plan) {
    __extension__ using Wide = unsigned __int128;
    Wide bytes = p.dtype == "F32" ? 4 : p.dtype == "BF16" ? 2 : 1;
    if (names[p.name]++ > 0 || p.shape.size() > 8) return false;
    bool zero = false;
    for (const uint64_t d : p.shape) {
      if (d > INT64_MAX) return false;
      zero = zero || d == 0;
      bytes *= d;
      if (bytes > INT64_MAX) return false;
    }
    if (p.begin > p.end || p.end > data || p.end - p.begin != bytes) return false;
    for (uint64_t i = p.begin; i < p.end; ++i) {
      if (covered[i]) return false;
      covered[i] = true;
    }
    total += p.end - p.begin;
    // An empty tensor has to lie between others.
    if (zero)
      for (const Planned& q : plan)
        if (q.begin < p.begin && p.begin < q.end) return false;
  }
  return total == data;
}

TEST(Safetensors, AgreesWithAnIndependentCheckOnMutations) {
  const TempDir dir;
  const std::vector<uint64_t> edges{0,
                                    1,
                                    2,
                                    3,
                                    4,
                                    7,
                                    8,
                                    12,
                                    16,
                                    20,
                                    24,
                                    4194305,
                                    211106198978564,
                                    1ull << 31,
                                    1ull << 32,
                                    1ull << 61,
                                    1ull << 62,
                                    (1ull << 63) - 1,
                                    1ull << 63,
                                    ~0ull};
  int accepted = 0, refused = 0;
  for (const unsigned seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
    for (int round = 0; round < 1000; ++round) {
      std::vector<Planned> plan{
          {"a", "F32", {2}, 0, 8}, {"b", "BF16", {2, 2}, 8, 16}, {"c", "U8", {0, 3}, 16, 16}, {"d", "U8", {8}, 16, 24}};
      uint64_t data = 24;
      for (size_t n = pick(3); n > 0; --n) {
        Planned& p = plan[pick(plan.size())];
        switch (pick(7)) {
          case 0: p.shape[pick(p.shape.size())] = edges[pick(edges.size())]; break;
          case 1: p.shape.push_back(edges[pick(edges.size())]); break;
          case 2: p.begin = edges[pick(edges.size())]; break;
          case 3: p.end = edges[pick(edges.size())]; break;
          case 4: p.name = std::string(1, static_cast<char>('a' + pick(4))); break;
          case 5: data = edges[pick(11)]; break;
          default: std::swap(p, plan[pick(plan.size())]); break;
        }
      }
      std::vector<std::string> members;
      for (const Planned& p : plan)
        members.push_back(
            entry(p.name, p.dtype, fmt::format("{}", fmt::join(p.shape, ",")), fmt::format("{},{}", p.begin, p.end)));
      const std::string json = object(members);
      put(dir / "m", raw_file(json, data));
      const std::string text = error_of([&] { Safetensors(dir / "m"); });
      EXPECT_EQ(text.empty(), valid(plan, data)) << json << " + " << data << " bytes: " << text;
      ++(text.empty() ? accepted : refused);
    }
  }
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refused, 700);
}

TEST(Safetensors, FlippedBytesNeverCrash) {
  const TempDir dir;
  write_file(dir / "whole", {{"first", counting({4})}, {"last", counting({3})}}, {{"k", "v"}});
  const std::string bytes = get(dir / "whole");
  const auto header = static_cast<size_t>(Safetensors(dir / "whole").data_start());
  for (size_t at = 0; at < header; ++at)
    for (const int flip : {0x01, 0x10, 0x80}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      put(dir / "f", changed);
      error_of([&] {
        const Safetensors file(dir / "f");
        for (const StoredTensor& tensor : file.tensors()) file.read(tensor.name);
      });
    }
}

// Reading sixteen times the tensors takes about sixteen times the work: 256 times where every tensor looks at every
// other. Processor time, so that a busy machine changes nothing.
TEST(Safetensors, HeadersAreReadInLinearTime) {
  const TempDir dir;
  const auto work = [&](int count) {
    std::vector<std::pair<std::string, Desc>> tensors;
    for (int i = 0; i < count; ++i)
      tensors.emplace_back(fmt::format("model.diffusion_model.block.{}.attn.proj.weight", i),
                           Desc{DType::bf16, {1, 2}});
    const std::vector<std::byte> bytes(4);
    stream_safetensors(dir / "big", tensors, {}, [&](size_t, const WriteBytes& write) { write(bytes); });
    double least = 1e9;
    for (int i = 0; i < 5; ++i) {
      const std::clock_t start = std::clock();
      const Safetensors file(dir / "big");
      least = std::min(least, static_cast<double>(std::clock() - start));
    }
    return least;
  };
  const double few = work(1000);
  EXPECT_LT(work(16000), 64 * few);
}

TEST(Safetensors, WriterRefusesWhatItCouldNotReadBack) {
  const TempDir dir;
  const HostTensor t = counting({2});
  EXPECT_NE(error_of([&] { write_file(dir / "a", {{"x", t}, {"x", t}}); }).find("there twice"), std::string::npos);
  EXPECT_NE(error_of([&] { write_file(dir / "a", {{"__metadata__", t}}); }).find("reserved"), std::string::npos);
  EXPECT_NE(error_of([&] { write_file(dir / "a", {{"\xff", t}}); }).find("not UTF-8"), std::string::npos);
  EXPECT_NE(error_of([&] {
              stream_safetensors(dir / "a", {{"x", t.desc}}, {}, [](size_t, const WriteBytes&) {});
            }).find("came with 0 bytes"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
}

TEST(Safetensors, NamesHaveALimit) {
  const TempDir dir;
  const auto file = [&](size_t length) {
    put(dir / "f.safetensors",
        raw_file("{\"" + std::string(length, '1') + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0));
    return error_of([&] { Safetensors(dir / "f.safetensors"); });
  };
  EXPECT_EQ(file(1024), "");
  EXPECT_NE(file(1025).find("a name of 1025 bytes, expected at most 1024"), std::string::npos);
}

// A header of many empty tensors is refused before anything is done with each of them.
TEST(Safetensors, TheNumberOfTensorsHasALimit) {
  const TempDir dir;
  const auto header = [](int count) {
    std::string json = "{";
    for (int i = 0; i < count; ++i)
      json += fmt::format("{}\"t{}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", i == 0 ? "" : ",", i);
    return json + "}";
  };
  put(dir / "many.safetensors", raw_file(header(65536), 0));
  EXPECT_EQ(Safetensors(dir / "many.safetensors").tensors().size(), 65536u);
  put(dir / "more.safetensors", raw_file(header(65537), 0));
  EXPECT_NE(error_of([&] { Safetensors(dir / "more.safetensors"); }).find("more than 65536 tensors"),
            std::string::npos);
}

}  // namespace
}  // namespace lh::safetensors_test
