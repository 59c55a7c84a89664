// Handlers that only touch lock-free atomics; a crash writes a line of its own and goes on as it would.
#include "core/signals.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>

#include "core/error.h"

namespace lh {
namespace {

std::atomic<int> received{0}, count{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

thread_local int whole_changes = 0;

unsigned stop_seconds = 27;  // from the first signal to the end, at most; set before there are handlers

unsigned hurry_seconds() { return std::max(stop_seconds / 3, 1u); }

void handle(int signal) {
  received.store(signal);
  switch (count.fetch_add(1)) {
    case 0: alarm(hurry_seconds()); return;
    case 1: return;
    default: _exit(128 + signal);
  }
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
std::terminate_handler terminate_before = nullptr;

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

// Time is up, first for what is being computed, then for the process.
void handle_alarm(int) {
  static std::atomic<bool> hurried{false};
  if (!hurried.exchange(true)) {
    int once = 1;
    count.compare_exchange_strong(once, 2);
    alarm(std::max(stop_seconds, hurry_seconds() + 1) - hurry_seconds());
    return;
  }
  Line line;
  line << "lora-host: error: a signal asked for the end, and it did not come in time: left as it was. The last "
          "checkpoint is whole; continue with --resume\n";
  line.print();
  _exit(128 + received.load());
}

// An allocation has failed. What is thrown then is not always to be seen where it ends the process: the C++ library
// calls std::terminate for itself in functions of its own that may not throw.
std::atomic<bool> memory_ended{false};

void handle_failed_allocation() {
  memory_ended.store(true);
  throw std::bad_alloc();
}

[[noreturn]] void handle_terminate() {
  if (memory_ended.load()) {
    Line line;
    line << "lora-host: error: the machine has no memory left. End other programs, or ask for less\n";
    line.print();
    _exit(static_cast<int>(Code::resource));
  }
  terminate_before();
  std::abort();
}

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

std::atomic<bool> exit_expected{false};

// Whoever started the program would take this end for that of its own work, or for none of the documented ones:
// OpenMP's library ends the process itself where it has no memory or cannot start a thread, and has said so.
void handle_exit() {
  if (const char* name = foreign_code) {
    Line line;
    line << "lora-host: error: " << name << ": called exit(). Report it to the author of the plugin\n";
    line.print();
    _exit(static_cast<int>(Code::plugin));
  }
  if (!exit_expected.load()) {
    Line line;
    line << "lora-host: error: a library ended the program, for the reason above. The last checkpoint is whole; "
            "continue with --resume\n";
    line.print();
    _exit(static_cast<int>(Code::resource));
  }
}

}  // namespace

void install_signal_handlers() {
  if (const char* given = std::getenv("LORA_STOP_SECONDS"))
    if (const auto seconds = std::strtoul(given, nullptr, 10); seconds > 0 && seconds <= 86400)
      stop_seconds = static_cast<unsigned>(seconds);
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = handle_alarm;
  sigaction(SIGALRM, &action, nullptr);
  action.sa_handler = handle;
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

bool stop_requested() { return count.load() > 0; }
bool hurry_requested() { return count.load() > 1; }
int stop_signal() { return received.load(); }

void clear_stop_request() {
  alarm(0);
  received.store(0);
  count.store(0);
}

void check_hurry() {
  if (hurry_requested() && whole_changes == 0) throw Interrupted();
}

void ask_to_stop(bool hurry) {
  int before = count.load();
  const int wanted = hurry ? 2 : 1;
  while (before < wanted && !count.compare_exchange_weak(before, wanted)) {
  }
  if (before > 0) return;  // the time is running
  received.store(SIGTERM);
  alarm(hurry_seconds());
}

WholeChange::WholeChange() { ++whole_changes; }
WholeChange::~WholeChange() { --whole_changes; }

void install_crash_handlers() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // the C library loads its unwinder now, not when there is no memory left
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
  std::atexit(handle_exit);
  std::set_new_handler(handle_failed_allocation);
  terminate_before = std::set_terminate(handle_terminate);
}

void enter_foreign_code(const char* name) { foreign_code = name; }

void expect_exit() { exit_expected.store(true); }

}  // namespace lh
