#include "cli/environment.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

namespace lh {

void sleep_when_idle(char** argv) {
  const bool waits = std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
  const bool multiplies = std::getenv("OPENBLAS_NUM_THREADS") != nullptr;
  if (waits && multiplies) return;
  if (!waits && ::setenv("OMP_WAIT_POLICY", "passive", 0) != 0) return;
  // OpenMP's threads multiply. OpenBLAS makes none of its own at its start: where their buffers find no room it does
  // not come back, not even from the end of the program.
  if (!multiplies && ::setenv("OPENBLAS_NUM_THREADS", "1", 0) != 0) return;
  ::execv("/proc/self/exe", argv);  // returns only if it fails
}

void fill_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);  // the lowest number that is free
}

void survive_write_signals() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace lh
