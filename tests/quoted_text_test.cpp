// What a template takes from a prompt's quotes.
#include "data/quoted_text.h"

#include <gtest/gtest.h>

namespace lh::test::quoted_text_test {
namespace {

TEST(QuotedText, EachWithWordsAroundIt) {
  const auto quotes = QuotesPlace::find(R"({quotes|Text "|". })");
  ASSERT_TRUE(quotes);
  EXPECT_EQ(quotes->of("no quotes, and don't or it's"), "");
  EXPECT_EQ(quotes->of(R"(a "b" c)"), R"(Text "b". )");
  EXPECT_EQ(quotes->of("\u201cx\u201d \u2018y\u2019 \"z\""), R"(Text "z". Text "y". Text "x". )");
  EXPECT_EQ(quotes->of("5\" tall"), "");
  EXPECT_EQ(quotes->of("\"a\nb\" and \"c\""), R"(Text " and ". )");  // as it is found from the left
  EXPECT_EQ(quotes->of("\"\""), R"(Text "". )");
  EXPECT_FALSE(QuotesPlace::find("{prompt}") || QuotesPlace::find("{quotes|a}") || QuotesPlace::find("{quotes|a|b|c}"));
}

}  // namespace
}  // namespace lh::test::quoted_text_test
