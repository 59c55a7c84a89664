// A process that was asked to end ends in time, and one that lacks memory says so.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <set>

#include "core/signals.h"
#include "support/device.h"
#include "support/run_host.h"

namespace lh::test::stop_test {
namespace {

using Clock = std::chrono::steady_clock;

// What hangs is left at the deadline; what looks for a second signal is told of it before.
TEST(Stop, TimeIsASignalToo) {
  for (const bool looks : {false, true}) {
    const auto begin = Clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("LORA_STOP_SECONDS", "3", 1);
      install_signal_handlers();
      ::raise(SIGTERM);
      while (!looks || !hurry_requested()) ::usleep(1000);
      ::_exit(stop_signal() == SIGTERM ? 7 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), looks ? 7 : 128 + SIGTERM);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    EXPECT_GE(seconds, looks ? 0.9 : 2.9);
    EXPECT_LT(seconds, 20);
  }
}

// What a process with the handlers says that ends in `body`, which it must with code 4.
std::string said_at_the_end(const std::function<void()>& body) {
  int pipe[2];
  EXPECT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    install_crash_handlers();
    body();
    ::_exit(0);
  }
  ::close(pipe[1]);
  char text[256] = {};
  EXPECT_GT(::read(pipe[0], text, sizeof text - 1), 0);
  ::close(pipe[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 4) << status;
  return text;
}

// Memory that is not there where nothing may be thrown.
TEST(Stop, NoMemoryInADestructorIsSaid) {
  if (sanitized) GTEST_SKIP() << "the sanitizer ends a program that asks for so much";
  const std::function<void()> allocates = [] { ::operator delete(::operator new(SIZE_MAX / 2)); };
  EXPECT_THAT(said_at_the_end([&]() noexcept { allocates(); }),
              testing::HasSubstr("error: the machine has no memory left"));
}

// OpenMP's library ends a program that has no memory for its threads with exit(1).
TEST(Stop, AnExitOfALibraryIsSaid) {
  EXPECT_THAT(said_at_the_end([] { std::exit(1); }),
              testing::HasSubstr("error: a library ended the program, for the reason above"));
}

// Whatever address space there is, a run does its work or is refused; OpenBLAS used to ask for its buffers for ever.
TEST(Stop, TooLittleAddressSpaceIsNoHang) {
  if (sanitized) GTEST_SKIP() << "the sanitizer takes terabytes of address space";
  if (tested_device() != "cpu") GTEST_SKIP() << "CUDA takes address space for all memory that there is";
  ToyRun run;
  run.set("steps", "1").set("save_every", "0");
  const auto limited = [&](int64_t mib, const std::vector<std::string>& words) {
    const std::string usual = "unset OPENBLAS_NUM_THREADS; export OMP_WAIT_POLICY=passive; ";  // as users may have it
    HostProcess process(words, {.shell_prefix = usual + "ulimit -v " + std::to_string(mib * 1024)});
    return process.wait();
  };
  int64_t loads = 32;  // the least at which the program itself is loaded
  while (loads < 65536 && limited(loads, {"--version"}).code != 0) loads += 32;
  std::set<int> codes;
  for (const int64_t more : {0, 32, 96, 224, 4096}) {
    const HostResult result = limited(loads + more, run.command({"--resume"}));
    EXPECT_FALSE(result.timed_out) << more << " MiB: " << result.output;
    EXPECT_EQ(result.signal, 0) << more << " MiB: " << result.output;
    EXPECT_TRUE(result.code == 0 || result.code == 4) << more << " MiB: " << result.code << "\n" << result.output;
    codes.insert(result.code);
  }
  EXPECT_TRUE(codes.contains(0) && codes.contains(4));
}

}  // namespace
}  // namespace lh::test::stop_test
