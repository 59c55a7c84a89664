// Generated tensors equal those of the reference implementation; made checkpoints are real files.
#include "io/synthetic.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "support/io_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::synthetic_test {
namespace {

using namespace test;

nlohmann::json reference() {
  return nlohmann::json::parse(get(std::filesystem::path(test_data()) / "generator_check.json"));
}

TEST(Synthetic, HashEqualsReference) {
  const nlohmann::json json = reference();
  for (const auto& [text, hash] : json["fnv1a64"].items())
    EXPECT_EQ(fmt::format("{:016x}", fnv1a64(text)), hash.get<std::string>());
}

TEST(Synthetic, ValuesEqualReference) {
  const nlohmann::json json = reference();
  for (const auto& row : json["tensors"]) {
    const auto& spec = row["spec"];
    const std::string name = row["seed"].get<std::string>() + "/" + row["key"].get<std::string>();
    std::vector<float> values(static_cast<size_t>(Shape(spec["shape"].get<std::vector<int64_t>>()).numel()));
    generate(name, spec["offset"].get<double>(), spec["scale"].get<double>(), values);
    double sum = 0;
    for (const float v : values) sum += v;
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(static_cast<double>(values[i]), row["first"][i].get<double>()) << name;
    EXPECT_EQ(static_cast<double>(values.back()), row["last"].get<double>()) << name;
    EXPECT_NEAR(sum, row["sum"].get<double>(), 1e-9) << name;
    std::vector<float> tail(1);
    generate(name, spec["offset"].get<double>(), spec["scale"].get<double>(), tail,
             static_cast<int64_t>(values.size()) - 1);
    EXPECT_EQ(tail[0], values.back()) << name;
  }
}

TEST(Synthetic, MakesACheckpoint) {
  const TempDir dir;
  put(dir / "keys.json",
      R"({"about": "x", "tensors": {"b.weight": ["BF16", [4, 12]], "norm.weight": ["F32", [5]], "a.bias": ["F16", [3]],
    "bn.running_var": ["F32", [5]], "s.std-of-means": ["F32", [5]], "w8.weight": ["F8_E4M3", [2, 3]], "ids": ["I64", [1, 4]], "scalar": ["F32", []], "big.weight": ["F32", [300, 300]]}})");
  make_checkpoint(dir / "keys.json", dir / "a.safetensors", 7);
  make_checkpoint(dir / "keys.json", dir / "b.safetensors", 7);
  make_checkpoint(dir / "keys.json", dir / "c.safetensors", 8);
  EXPECT_EQ(get(dir / "a.safetensors"), get(dir / "b.safetensors"));
  EXPECT_NE(get(dir / "a.safetensors"), get(dir / "c.safetensors"));
  const Safetensors file(dir / "a.safetensors");
  ASSERT_EQ(file.tensors().size(), 9u);
  EXPECT_EQ(file.tensors()[0].name, "b.weight");
  std::vector<float> want(48);
  generate("7/b.weight", 0, std::sqrt(3.0) / std::sqrt(12.0), want);
  EXPECT_EQ(file.read("b.weight").data, as_type(floats({4, 12}, want), DType::bf16).data);
  std::vector<float> big(90000);
  generate("7/big.weight", 0, std::sqrt(3.0) / std::sqrt(300.0), big);
  EXPECT_EQ(file.read("big.weight").data, floats({300, 300}, big).data);
  for (const char* positive : {"norm.weight", "bn.running_var", "s.std-of-means"}) {
    const HostTensor values = file.read(positive);
    for (const float v : values.as<float>()) EXPECT_NEAR(v, 1.0, 0.11) << positive;
  }
  const HostTensor ids = file.read("ids");
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(ids.as<int64_t>()[static_cast<size_t>(i)], i);
}

TEST(Synthetic, RefusesBadKeyLists) {
  const TempDir dir;
  for (const char* json :
       {"", "[]", "{}", R"({"tensors": 3})", R"({"tensors": {"a": ["F32"]}})", R"({"tensors": {"a": ["F32", [-1]]}})",
        R"({"tensors": {"a": ["Q1", [1]]}})", R"({"tensors": {"a": ["F32", [99999999999, 99999999999]]}})"}) {
    put(dir / "keys.json", json);
    EXPECT_NE(error_of([&] { make_checkpoint(dir / "keys.json", dir / "out", 1); }).find("keys.json"),
              std::string::npos)
        << json;
    EXPECT_FALSE(std::filesystem::exists(dir / "out"));
  }
}

TEST(Synthetic, TheCommandReplacesNoFile) {
  const TempDir dir;
  put(dir / "keys.json", R"({"tensors": {"a": ["F32", [2]]}})");
  put(dir / "model.safetensors", "a model");
  std::vector<std::string> command{"make-checkpoint", "--like", (dir / "keys.json").string(),
                                   (dir / "model.safetensors").string()};
  const HostResult refused = run_host(command);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.output.find("is there already. Give another name, or --force to replace it"), std::string::npos);
  EXPECT_EQ(get(dir / "model.safetensors"), "a model");
  command.emplace_back("--force");
  EXPECT_EQ(run_host(command).code, 0);
  EXPECT_EQ(Safetensors(dir / "model.safetensors").tensors().size(), 1u);
}

}  // namespace
}  // namespace lh::synthetic_test
