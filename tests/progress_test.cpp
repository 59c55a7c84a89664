// Progress lines, log topics and stop signals.
#include "core/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "core/log.h"
#include "core/signals.h"

namespace lh::progress_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ProgressState sample_state() {
  return {.name = "dog",
          .done = 129,
          .total = 300,
          .first = 0,
          .seconds = 41,
          .details = "loss 0.512 lr 1.0e-04 mem 812 MiB"};
}

TEST(Progress, LineShowsEverything) {
  EXPECT_EQ(progress_line(sample_state(), 0),
            "dog  43%|####      | 129/300 [00:41<00:54, 3.1 it/s] loss 0.512 lr 1.0e-04 mem 812 MiB");
}

TEST(Progress, LineFitsTheTerminal) {
  for (int64_t width = 1; width < 200; ++width)
    EXPECT_LE(static_cast<int64_t>(progress_line(sample_state(), width).size()), width);
  EXPECT_THAT(progress_line(sample_state(), 200), HasSubstr("mem 812 MiB"));
  EXPECT_EQ(progress_line(sample_state(), 79),
            "dog  43% 129/300 [00:41<00:54, 3.1 it/s] loss 0.512 lr 1.0e-04 mem 812 MiB");
  // Of narrow ones the loss is the last to go, and whole.
  EXPECT_EQ(progress_line(sample_state(), 60), "dog  43% 129/300 <00:54 loss 0.512 lr 1.0e-04 mem 812 MiB");
  EXPECT_EQ(progress_line(sample_state(), 50), "dog  43% 129/300 <00:54 loss 0.512 lr 1.0e-04");
  EXPECT_EQ(progress_line(sample_state(), 39), "dog  43% 129/300 <00:54 loss 0.512");
  EXPECT_EQ(progress_line(sample_state(), 30), "dog  43% 129/300 <00:54");
}

TEST(Progress, CutsBetweenCharacters) {
  ProgressState state = sample_state();
  state.name = "\xC3\xA4\xC3\xA4\xC3\xA4";
  EXPECT_EQ(progress_line(state, 2), "\xC3\xA4\xC3\xA4");
}

TEST(Progress, ResumedRunCountsItsOwnSteps) {
  ProgressState state = sample_state();
  state.first = 88;
  EXPECT_THAT(progress_line(state, 0), HasSubstr("1.0 it/s"));
}

TEST(Progress, OddNumbersDoNotBreakIt) {
  EXPECT_THAT(progress_line({.name = "", .done = 5, .total = 0, .details = ""}, 0), HasSubstr("5/0 [00:00<?, ? it/s]"));
  EXPECT_THAT(progress_line({.name = "x", .done = 9, .total = 3, .seconds = 1, .details = ""}, 0), HasSubstr("100%"));
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(-1), "?");
  EXPECT_EQ(clock_text(1e300), "?");
}

TEST(Progress, PlainLinesAreFewAndTheLastIsWritten) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Progress progress("run", 100, 0, {.fd = ends[1], .plain_interval = 1000});
    for (int64_t i = 1; i <= 100; ++i) progress.update(i, training_details(0.5, 1e-4, -1));
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t size = read(ends[0], text.data(), text.size());
  close(ends[0]);
  ASSERT_GT(size, 0);
  text.resize(static_cast<size_t>(size));
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  EXPECT_THAT(text, HasSubstr("1/100"));
  EXPECT_THAT(text, HasSubstr("100%|##########| 100/100"));
  EXPECT_THAT(text, HasSubstr("loss 0.500 lr 1.0e-04\n"));
}

TEST(Progress, APlainLineIsWrittenOnce) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Progress progress("one", 1, 0, {.fd = ends[1], .plain_interval = 1000});
    progress.update(1, "");
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t size = read(ends[0], text.data(), text.size());
  close(ends[0]);
  ASSERT_GT(size, 0);
  text.resize(static_cast<size_t>(size));
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
}

TEST(Progress, SurvivesAClosedTarget) {
  Progress progress("run", 2, 0, {.fd = -1, .plain_interval = 0});
  progress.update(1, "");
}

TEST(Log, TopicsAreSplitAndUnknownOnesNamed) {
  std::vector<std::string> unknown;
  EXPECT_THAT(parse_topics("plan|time, plans", unknown), ElementsAre("plan", "time"));
  EXPECT_THAT(unknown, ElementsAre("plans"));
}

TEST(Signals, FirstAsksSecondHurriesThirdEnds) {
  for (const int asked : {SIGINT, SIGTERM, SIGHUP})
    EXPECT_EXIT(
        {
          ::signal(SIGHUP, SIG_DFL);
          install_signal_handlers();
          raise(asked);
          if (!stop_requested() || stop_signal() != asked || hurry_requested()) _exit(1);
          check_hurry();
          clear_stop_request();
          raise(asked);
          if (!stop_requested()) _exit(2);
          raise(SIGTERM);
          if (!hurry_requested()) _exit(3);
          {
            const WholeChange whole;
            check_hurry();
          }
          try {
            check_hurry();
            _exit(4);
          } catch (const Interrupted&) {
          }
          raise(asked);
          _exit(0);
        },
        testing::ExitedWithCode(128 + asked), "");
}

TEST(Signals, AnIgnoredHangupStaysIgnored) {
  EXPECT_EXIT(
      {
        ::signal(SIGHUP, SIG_IGN);
        install_signal_handlers();
        raise(SIGHUP);
        _exit(stop_requested() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lh::progress_test
