#include "cli/launcher.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "world/world.h"

namespace lh {
namespace {

constexpr int by_signal = 128;  // and its number, is the status of a process that a signal ended

// Open MPI ends all processes a second after one was killed; the others save what there is, which may take longer. It
// waits that long even where they have ended, and twice; who has set another time in the environment is left with that.
constexpr const char* rescue_seconds = "30";
constexpr const char* seconds_given = "OMPI_MCA_odls_base_sigkill_timeout";

std::vector<std::string> command_of(const Options& options, bool again) {
  std::vector<std::string> command{"mpirun", "-n", std::to_string(options.processes)};
  if (world_library_text().find("Open MPI") != std::string::npos && std::getenv(seconds_given) == nullptr)
    command.insert(command.end(), {"--mca", "odls_base_sigkill_timeout", rescue_seconds});
  command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  if (again && options.resume.empty()) command.emplace_back("--resume");
  return command;
}

int run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (const int error = ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ); error != 0)
    fail(Code::resource, "mpirun cannot be started: {}. {}", std::strerror(error), world_library_text());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail(Code::resource, "mpirun: {}", std::strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : by_signal + WTERMSIG(status);
}

// Has a run with this exit status of mpirun lost a process, so that it may go on from its last state?
bool lost_a_process(int status) { return status == static_cast<int>(rank_lost) || status > by_signal; }

}  // namespace

int run_launcher(const Options& options) {
  if (launched_with_others())
    fail(Code::config,
         "--processes: mpirun or srun has started this process already. Leave it out, or start one alone");
  if (world_library_text().find("none") != std::string::npos)
    fail(Code::resource, "--processes: {}", world_library_text());
  if (::geteuid() == 0)  // the user has said so by being root
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}) ::setenv(name, "1", 0);
  // Ctrl-C is told to mpirun as well, which tells the run.
  install_signal_handlers();
  for (int64_t left = options.restarts, again = 0;; --left, again = 1) {
    const int status = run(command_of(options, again != 0));
    if (!lost_a_process(status) || stop_requested()) return status;
    if (left == 0) {
      if (options.restarts > 0)
        log_error("a process of the run was lost for the {}. time; continue with --resume", options.restarts + 1);
      return status;
    }
    log_warning("a process of the run was lost (exit status {}): it goes on from its last state, {} more times", status,
                left - 1);
  }
}

}  // namespace lh
