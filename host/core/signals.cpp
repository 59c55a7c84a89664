#include "core/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace lh {
namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void handle(int signal) {
  if (received.exchange(signal) != 0 && signal == SIGINT) _exit(130);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return received.load() != 0; }
int stop_signal() { return received.load(); }
void clear_stop_request() { received.store(0); }

}  // namespace lh
