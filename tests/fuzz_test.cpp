// The fuzz targets on their seeds, on mutations of them, and on every input that once was a report
// (tests/fuzz/corpus/TARGET); libFuzzer searches on from there (docs/fuzzing.md).
#include "fuzz/fuzz.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <regex>
#include <set>

#include "support/io_files.h"
#include "support/paths.h"
#include "support/source_files.h"

namespace lh::test::fuzz_test {
namespace {

namespace fs = std::filesystem;
using fuzz::Target;

std::string hex(const std::string& input) {
  std::string out;
  for (const char c : input.substr(0, 2048)) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

class Fuzz : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    level_ = spdlog::get_level();
    spdlog::set_level(spdlog::level::off);  // what a reader warns of is no matter here
  }
  void TearDown() override { spdlog::set_level(level_); }
  // Was it taken?
  bool run(const std::string& input, const std::string& what) const {
    try {
      return GetParam().run(fuzz::bytes_of(input));
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << ": " << error.what() << "\ninput: " << hex(input);
    }
    return false;
  }

 private:
  spdlog::level::level_enum level_ = spdlog::level::off;
};

std::string mutated(std::string input, const std::string& other, fuzz::Random& random) {
  const auto below = [&](size_t n) { return fuzz::below(n, random); };
  for (size_t edits = 1 + below(4); edits > 0; --edits) {
    const size_t at = below(input.size() + 1);
    switch (below(5)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1: input.resize(at); break;
      case 2: input.insert(at, 1, static_cast<char>(random())); break;
      case 3: input.erase(at, below(8)); break;
      default: const size_t from = below(other.size()); input.insert(at, other, from, below(32));
    }
  }
  return input;
}

TEST_P(Fuzz, SeedsCorpusAndMutations) {
#ifndef LORA_WEBP
  if (GetParam().name == std::string_view("webp")) GTEST_SKIP() << "built without libwebp-dev";
#endif
  constexpr int mutations = 2000;
  const std::vector<std::string> seeds = GetParam().seeds();
  ASSERT_FALSE(seeds.empty());
  EXPECT_TRUE(run(seeds.front(), "seed")) << "the first seed is a good file";
  for (const std::string& seed : seeds) run(seed, "seed");
  run("", "nothing");
  const fs::path corpus = fs::path("tests/fuzz/corpus") / GetParam().name;
  if (fs::exists(fs::path(source_dir()) / corpus))
    for (const std::string& input : source_files(corpus, "")) run(input, "corpus");
  fuzz::Random random(12);
  for (int i = 0; i < mutations; ++i) {
    std::string input = seeds[random() % seeds.size()];
    if (input.size() > 4096) continue;
    if (GetParam().edit != nullptr && random() % 2 == 0)
      for (int edits = 1 + i % 3; edits > 0; --edits) input = GetParam().edit(input, random);
    else
      input = mutated(std::move(input), seeds[random() % seeds.size()], random);
    run(input, "a mutation");
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, testing::ValuesIn(fuzz::targets()),
                         [](const auto& info) { return std::string(info.param.name); });

// A reader that was written anew must keep the places of the bugs that scripts/fuzz.sh --planted plants in it.
TEST(FuzzPlants, StandWhereTheyAreSaidTo) {
  const std::string all = get(fs::path(source_dir()) / "tests/fuzz/plants.cmake");
  const std::regex plant(R"(\nlora_plant\((\w+) (\w+) (\S+) \[\[([^\]]*(?:\][^\]]+)*)\]\])");
  std::set<std::string> planted;
  for (std::sregex_iterator at(all.begin(), all.end(), plant), end; at != end; ++at) {
    const std::string source = get(fs::path(source_dir()) / (*at)[3].str()), text = (*at)[4];
    const size_t found = source.find(text);
    EXPECT_NE(found, source.npos) << (*at)[1] << ' ' << (*at)[2] << ": " << text;
    EXPECT_EQ(found, source.rfind(text)) << "more than once: " << text;
    planted.insert((*at)[1]);
  }
  for (const Target& target : fuzz::targets()) EXPECT_TRUE(planted.contains(std::string(target.name))) << target.name;
}

}  // namespace
}  // namespace lh::test::fuzz_test
