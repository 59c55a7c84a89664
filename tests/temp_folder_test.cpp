// Folders in the making: what a killed process left goes with the next clean-up, what another one is writing stays.
#include "io/temp_folder.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/file.h"
#include "support/io_files.h"

namespace lh::test::temp_folder_test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(folder)) all.push_back(entry.path().filename());
  return all;
}

TEST(TempFolder, GoesAwayUnlessItIsPutInPlace) {
  const TempDir dir;
  {
    const lh::TempFolder made(dir / "model");
    put(made.path() / "a.txt", "a");
    EXPECT_EQ(entries(dir.path()).size(), 1u);
    EXPECT_EQ(remove_leftovers(dir.path()), 0) << "it is being written";
    EXPECT_TRUE(fs::exists(made.path() / "a.txt"));
  }
  EXPECT_TRUE(entries(dir.path()).empty());
  lh::TempFolder made(dir / "model"), other(dir / "another");
  EXPECT_NE(made.path(), other.path());
  put(made.path() / "a.txt", "a");
  made.put_in_place();
  EXPECT_EQ(get(dir / "model" / "a.txt"), "a");
}

TEST(TempFolder, OfAKilledProcessIsCleared) {
  const TempDir dir;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const lh::TempFolder made(dir / "model");
    put(made.path() / "a.txt", "a");
    const char done = 1;
    if (::write(ready[1], &done, 1) == 1) ::pause();
    ::_exit(0);
  }
  char done = 0;
  ASSERT_EQ(::read(ready[0], &done, 1), 1);
  EXPECT_EQ(remove_leftovers(dir.path()), 0);
  EXPECT_EQ(entries(dir.path()).size(), 1u);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(entries(dir.path()).size(), 1u) << "the kill left it";
  EXPECT_EQ(remove_leftovers(dir.path()), 1);
  EXPECT_TRUE(entries(dir.path()).empty());
  ::close(ready[0]), ::close(ready[1]);
}

}  // namespace
}  // namespace lh::test::temp_folder_test
