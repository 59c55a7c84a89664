// Signals. SIGINT, SIGTERM and SIGHUP (the terminal went away) ask the run to stop. The first: it finishes the step,
// saves and ends with exit_interrupted. The second: what is being computed is given up, and what was done before is
// saved. The third ends the process at once with status 128 + signal. Time is a signal too: the second comes by itself
// a third of LORA_STOP_SECONDS (27 unless set) after the first, the third at the end of it, whatever the process hangs
// in. Files that are being written then are temporary ones, so what was saved stays whole. A crash inside code that is
// not the host's names that code.
#pragma once

#include <exception>

namespace lh {

void install_signal_handlers();  // a SIGHUP that was ignored (nohup) stays so
bool stop_requested();
bool hurry_requested();        // a second signal came
int stop_signal();             // the last of them, or 0
void clear_stop_request();     // before a new run in the same process
void ask_to_stop(bool hurry);  // as a first signal does, or a second one: another process of this run had it

// Thrown by check_hurry(); becomes exit_interrupted.
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "stopped by a second signal"; }
};
// Throws Interrupted after a second signal, where nothing is lost by leaving in the middle: between the ops of a graph.
void check_hurry();
// While one lives on this thread, check_hurry() does nothing: values that belong together change together.
class WholeChange {
 public:
  WholeChange();
  ~WholeChange();
  WholeChange(const WholeChange&) = delete;
  WholeChange& operator=(const WholeChange&) = delete;
};

// From here on a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) of a thread that is inside foreign code prints one
// line with its name and ends the process with Code::plugin, and so does exit(). Any other crash is left to whoever
// handled it before. An exit() that was not expected is that of a library without memory: Code::resource. Memory that
// is not there where nothing may be thrown (a destructor, a loop of threads) is told and ends the process with
// Code::resource.
void install_crash_handlers();
void expect_exit();  // the program ends by itself from here on: main returns
// Names the foreign code that this thread runs from now on; nullptr: the host's own. The text is not copied.
void enter_foreign_code(const char* name);

}  // namespace lh
