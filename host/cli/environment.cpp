#include "cli/environment.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace lh {

void sleep_when_idle(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (::setenv("OMP_WAIT_POLICY", "passive", 0) != 0) return;
  ::setenv("OPENBLAS_NUM_THREADS", "1", 0);  // OpenMP's threads multiply; OpenBLAS makes none of its own at its start
  ::execv("/proc/self/exe", argv);           // returns only if it fails
}

void survive_write_signals() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace lh
