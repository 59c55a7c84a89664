// Rates of a device are measured once: what is kept is used again, and what is not what was kept is measured anew.
#include "run/known_rates.h"

#include <gmock/gmock.h>

#include <utility>

#include "run/card.h"
#include "support/device.h"
#include "support/io_files.h"
#include "support/log.h"

namespace lh::test::known_rates_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

// No two-digit fractions: what is read back has to be the number itself, so that plans are the same.
constexpr Rates measured{.products = 1e15 / 3, .eight_bit = 0, .memory = 1e13 / 7, .link = 1e11 / 9};

bool same(const Rates& a, const Rates& b) {
  return a.products == b.products && a.eight_bit == b.eight_bit && a.memory == b.memory && a.link == b.link;
}

class KeptRates : public testing::Test {
 protected:
  KnownRates get(const std::string& what, const Rates& now = measured) {
    return kept_rates(dir_ / "cache", what, [&] {
      ++measurements_;
      return now;
    });
  }
  // The only file that is kept.
  fs::path file() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(dir_ / "cache")) all.push_back(entry);
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? fs::path() : all.front();
  }
  TempDir dir_;
  int measurements_ = 0;
};

TEST_F(KeptRates, AreMeasuredOnceForEachDevice) {
  const KnownRates first = get("card; driver 1; bf16");
  EXPECT_TRUE(same(first.rates, measured));
  EXPECT_THAT(first.from, MatchesRegex("measured 20[0-9-]+ [0-9]+:[0-9]+ UTC"));
  const KnownRates again = get("card; driver 1; bf16", usual_rates);
  EXPECT_TRUE(same(again.rates, measured));
  EXPECT_EQ(again.from, first.from);
  EXPECT_EQ(measurements_, 1);
  EXPECT_TRUE(same(get("card; driver 2; bf16", usual_rates).rates, usual_rates)) << "another driver";
  EXPECT_TRUE(same(get("card; driver 1; bf16", usual_rates).rates, measured)) << "beside which the first stays";
  EXPECT_EQ(measurements_, 2);
}

TEST_F(KeptRates, AreMeasuredAnewWhereTheFileIsNotWhatWasKept) {
  get("card");
  const std::string whole = test::get(file());
  const auto with = [&](const std::string& text, const std::string& by) {
    std::string changed = whole;
    const size_t at = changed.find(text);
    EXPECT_NE(at, changed.npos) << text;
    return changed.replace(at, text.size(), by);
  };
  const std::pair<const char*, std::string> damages[] = {
      {"empty", ""},
      {"cut", whole.substr(0, whole.size() / 2)},
      {"without its last end of line", whole.substr(0, whole.size() - 1)},
      {"of another device", with("of card", "of cord")},
      {"a negative rate", with("link ", "link -")},
      {"no rate", with("memory ", "memory 0 ")},
      {"no number", with("products ", "products many ")},
      {"infinite", with("link ", "link inf\n")},
      {"bytes", std::string(100, '\0')}};
  for (const auto& [what, text] : damages) {
    SCOPED_TRACE(what);
    put(file(), text);
    const int before = measurements_;
    EXPECT_TRUE(same(get("card", usual_rates).rates, usual_rates));
    EXPECT_EQ(measurements_, before + 1);
    EXPECT_TRUE(same(get("card").rates, usual_rates)) << "and kept";
    EXPECT_EQ(measurements_, before + 1);
    put(file(), whole);
  }
}

TEST_F(KeptRates, ThatCannotBeKeptAreToldOf) {
  put(dir_ / "cache", "a file");
  EXPECT_TRUE(same(get("card").rates, measured));
  EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr("the rates of the device are not kept for later runs")));
}

TEST(KnownRates, SayWhatTheyAreAndWhereTheyAreFrom) {
  EXPECT_EQ(rates_text({{.products = 780e12, .eight_bit = 0, .memory = 4.8e12, .link = 5e10}, "as published"}),
            "products 780.0 TFLOP/s, memory 4800 GB/s, link 50.0 GB/s, as published");
  const KnownRates slow =
      with_link({{.products = 1e12, .eight_bit = 2e12, .memory = 1e12, .link = 5e10}, "measured"}, "12GB/s");
  EXPECT_EQ(rates_text(slow),
            "products 1.0 TFLOP/s (2.0 in 8 bits), memory 1000 GB/s, link 12.0 GB/s, measured, the link as given");
  EXPECT_EQ(with_link(slow, "").from, slow.from);
  Device cpu("cpu");
  EXPECT_EQ(known_rates(cpu, DType::f32, 1 << 30, LK_PRODUCTS_WIDE).from, "as usual, not measured");
}

}  // namespace
}  // namespace lh::test::known_rates_test
