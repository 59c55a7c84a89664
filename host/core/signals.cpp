// Handlers that only touch lock-free atomics; a crash writes a line of its own and goes on as it would.
#include "core/signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "core/error.h"

namespace lh {
namespace {

std::atomic<int> received{0}, count{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

thread_local int whole_changes = 0;

void handle(int signal) {
  received.store(signal);
  if (count.fetch_add(1) == 2) _exit(128 + signal);
}

struct Crash {
  int signal;
  const char* words;
};
constexpr std::array<Crash, 5> crashes = {{{SIGSEGV, "SIGSEGV (an invalid memory access)"},
                                           {SIGBUS, "SIGBUS (an invalid memory access)"},
                                           {SIGFPE, "SIGFPE (a division by zero)"},
                                           {SIGILL, "SIGILL (an instruction that this processor does not know)"},
                                           {SIGABRT, "SIGABRT (it called abort)"}}};
std::array<struct sigaction, crashes.size()> before;

// The processor's signals arrive on the thread that crashed, so this is the code that did. Written and read by one
// thread; volatile because a crash can be at any instruction.
thread_local const char* volatile foreign_code = nullptr;

// One line of text made of pieces; async-signal-safe.
class Line {
 public:
  Line& operator<<(const char* text) {
    for (; *text != '\0' && size_ < sizeof text_; ++text) text_[size_++] = *text;
    return *this;
  }
  void print() const { (void)!write(STDERR_FILENO, text_, size_); }

 private:
  char text_[1024];
  size_t size_ = 0;
};

void handle_crash(int signal, siginfo_t* info, void*) {
  size_t index = 0;
  while (crashes[index].signal != signal) ++index;
  if (const char* name = foreign_code) {
    Line line;
    line << "lora-host: error: " << name << ": crashed with " << crashes[index].words
         << ". Report it to the author of the plugin\n";
    line.print();
    _exit(static_cast<int>(Code::plugin));
  }
  sigaction(signal, &before[index], nullptr);
  // A fault happens again when this returns; what was sent has to be sent again.
  if (info->si_code <= 0 || signal == SIGABRT) raise(signal);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

bool stop_requested() { return count.load() > 0; }
bool hurry_requested() { return count.load() > 1; }
int stop_signal() { return received.load(); }

void clear_stop_request() {
  received.store(0);
  count.store(0);
}

void check_hurry() {
  if (hurry_requested() && whole_changes == 0) throw Interrupted();
}

WholeChange::WholeChange() { ++whole_changes; }
WholeChange::~WholeChange() { --whole_changes; }

void install_crash_handlers() {
  // A stack of its own: the crash may be the end of the main thread's.
  static std::array<char, 64 << 10> stack;
  stack_t alternative = {};
  alternative.ss_sp = stack.data();
  alternative.ss_size = stack.size();
  sigaltstack(&alternative, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = handle_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < crashes.size(); ++i) sigaction(crashes[i].signal, &action, &before[i]);
}

void enter_foreign_code(const char* name) { foreign_code = name; }

}  // namespace lh
