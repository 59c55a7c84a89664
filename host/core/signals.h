// SIGINT and SIGTERM ask the run to stop: it finishes the step, saves and ends with exit_interrupted.
// A second SIGINT ends the process at once with status 130.
#pragma once

namespace lh {

void install_signal_handlers();
bool stop_requested();
int stop_signal();          // SIGINT, SIGTERM, or 0
void clear_stop_request();  // before a new run in the same process

}  // namespace lh
