// Scales of files whose alpha stands in PEFT's configuration instead of in tensors.
#include "io/lora_scale.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/lora_inspect.h"
#include "io/lora_read.h"
#include "support/io_files.h"

namespace lh::lora_scale_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* in_metadata = "lora_adapter_metadata";

class LoraScale : public ::testing::Test {
 protected:
  // Two modules of rank 4, "transformer.blocks.0.to_q" and "transformer.blocks.10.to_q", or named otherwise.
  LoraFile read(const std::map<std::string, std::string>& metadata, const std::string& suffix = "",
                const std::string& component = "transformer.") const {
    std::vector<Given> tensors;
    for (const char* module : {"blocks.0.to_q", "blocks.10.to_q"}) {
      const std::string name = component + module;
      tensors.push_back({name + ".lora_A" + suffix + ".weight", counting({4, 6})});
      tensors.push_back({name + ".lora_B" + suffix + ".weight", counting({8, 4})});
    }
    tensors.insert(tensors.end(), more.begin(), more.end());
    write_file(path, tensors, metadata);
    return read_lora(path);
  }
  static std::vector<double> scales(const LoraFile& file) {
    std::vector<double> list;
    for (const LoraEntry& entry : file.entries) list.push_back(entry.scale());
    return list;
  }
  TempDir dir;
  std::filesystem::path path = dir / "adapter_model.safetensors";
  std::vector<Given> more;
};

TEST_F(LoraScale, IsThatOfTheConfiguration) {
  struct Row {
    const char* configuration;
    double first, tenth;  // of blocks.0 and blocks.10
  };
  const Row rows[] = {
      {R"({"transformer.r": 4, "transformer.lora_alpha": 16})", 4, 4},
      {R"({"transformer.r": 4, "transformer.lora_alpha": 16, "transformer.use_rslora": true})", 8, 8},
      {R"({"transformer.r": 8, "transformer.rank_pattern": {"to_q": 4}, "transformer.lora_alpha": 2})", 0.5, 0.5},
      {R"({"transformer.r": 4, "transformer.lora_alpha": 4, "transformer.alpha_pattern": {"blocks.0.to_q": 1}})", 0.25,
       1},
      {R"({"transformer.r": 4, "transformer.lora_alpha": 4, "transformer.alpha_pattern": {"blocks\\.[0-9]{2}.*": 2}})",
       1, 0.5},
      {R"({"transformer.r": 4, "transformer.lora_alpha": 4, "transformer.alpha_pattern": null})", 1, 1},
      {R"({"transformer.r": 4})", 2, 2},  // PEFT's alpha is 8 where none is named
      {R"({"text_encoder.r": 9, "text_encoder.lora_alpha": 1})", 1, 1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.configuration);
    const LoraFile file = read({{in_metadata, row.configuration}});
    EXPECT_THAT(file.problems, IsEmpty());
    EXPECT_THAT(scales(file), ElementsAre(row.first, row.tenth));
  }
}

TEST_F(LoraScale, IsThatOfTheNeighbour) {
  put(dir / "adapter_config.json",
      R"({"peft_type": "LORA", "r": 4, "lora_alpha": 16, "alpha_pattern": {"10.to_q": 2}})");
  EXPECT_THAT(scales(read({}, "", "base_model.model.")), ElementsAre(4, 0.5));
  // The file's own word counts more, and what kohya's or our programs write has its scale in its tensors.
  EXPECT_THAT(scales(read({{in_metadata, R"({"transformer.r": 4, "transformer.lora_alpha": 2})"}})),
              ElementsAre(0.5, 0.5));
  EXPECT_THAT(scales(read({{"ss_network_dim", "4"}})), ElementsAre(1, 1));
}

TEST_F(LoraScale, TensorsCountMost) {
  const float two = 2;
  more.push_back({"transformer.blocks.0.to_q.alpha", HostTensor::from_floats(Shape{}, std::span(&two, 1))});
  const LoraFile file = read({{in_metadata, R"({"transformer.r": 4, "transformer.lora_alpha": 16})"}});
  EXPECT_THAT(scales(file), ElementsAre(0.5, 4));
  EXPECT_EQ(file.entries[0].alpha_source, "");
  EXPECT_THAT(lora_text(file, {}), HasSubstr("alpha 16 by its lora_adapter_metadata (1), 2 (1)"));
  EXPECT_EQ(lora_json(file, {})["modules"][1]["alpha_source"], in_metadata);
}

TEST_F(LoraScale, WithoutOneIsOne) { EXPECT_THAT(scales(read({})), ElementsAre(1, 1)); }

TEST_F(LoraScale, WhatItDoesNotUnderstandIsNotApplied) {
  struct Row {
    const char *configuration, *why;
  };
  const Row rows[] = {
      {R"({"transformer.r": 8, "transformer.lora_alpha": 8})", "has matrices of rank 4, the configuration says 8"},
      {R"({"transformer.r": 4, "transformer.lora_alpha": "16"})",
       "transformer.lora_alpha: expected a number, found \"16\""},
      {R"({"transformer.r": 4, "transformer.alpha_pattern": [1]})", "expected an object of patterns, found [1]"},
      {R"({"transformer.r": 4, "transformer.alpha_pattern": {"to_q": null}})",
       "transformer.alpha_pattern.to_q: expected a number, found null"},
      {R"({"transformer.r": 4, "transformer.alpha_pattern": {"(to_q": 1}})", "the pattern '(to_q' cannot be matched"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.configuration);
    const LoraFile file = read({{in_metadata, row.configuration}});
    EXPECT_THAT(file.entries, IsEmpty());
    ASSERT_EQ(file.problems.size(), 4u);
    EXPECT_THAT(file.problems[0].why, HasSubstr(row.why));
  }
  for (const char* text : {"", "{", "[]", "7"})
    EXPECT_THAT(error_of([&] {
                  read({{in_metadata, text}});
                }),
                AllOf(HasSubstr("adapter_model.safetensors: its metadata lora_adapter_metadata"),
                      HasSubstr("expected a JSON object")))
        << text;
}

TEST_F(LoraScale, APatternThatTakesForEverIsRefused) {
  const std::string slow = R"({"transformer.r": 4, "transformer.alpha_pattern": {"((.*)*)*x": 1}})";
  const LoraFile file = read({{in_metadata, slow}});
  ASSERT_EQ(file.problems.size(), 4u);
  EXPECT_THAT(file.problems[0].why, HasSubstr("cannot be matched (U_REGEX_"));
}

TEST_F(LoraScale, PairsMayHaveTheNameOfTheirAdapter) {
  const LoraFile file = read({}, ".style");
  EXPECT_THAT(file.problems, IsEmpty());
  ASSERT_EQ(file.entries.size(), 2u);
  EXPECT_EQ(file.entries[0].name, "transformer.blocks.0.to_q");
  EXPECT_FALSE(split_lora_key("a.lora_A.b.c.weight"));
  EXPECT_FALSE(split_lora_key("a.lora_A..weight"));
  EXPECT_FALSE(split_lora_key(".lora_A.b.weight"));
}

}  // namespace
}  // namespace lh::lora_scale_test
