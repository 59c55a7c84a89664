// Signals. SIGINT and SIGTERM ask the run to stop: it finishes the step, saves and ends with exit_interrupted; a second
// SIGINT ends the process at once with status 130. A crash inside code that is not the host's names that code.
#pragma once

namespace lh {

void install_signal_handlers();
bool stop_requested();
int stop_signal();          // SIGINT, SIGTERM, or 0
void clear_stop_request();  // before a new run in the same process

// From here on a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) of a thread that is inside foreign code prints one
// line with its name and ends the process with Code::plugin. Any other crash is left to whoever handled it before.
void install_crash_handlers();
// Names the foreign code that this thread runs from now on; nullptr: the host's own. The text is not copied.
void enter_foreign_code(const char* name);

}  // namespace lh
