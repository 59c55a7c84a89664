// Runs the built lora-host as a user would, and sets up tiny training runs for it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "support/io_files.h"

namespace lh::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;  // about five times slower: tests do less
#else
inline constexpr bool sanitized = false;
#endif

struct HostResult {
  int code = -1;  // exit code; -1 when a signal ended it
  int signal = 0;
  bool timed_out = false;  // killed because it ran too long
  std::string output;      // stdout and stderr together
};

struct HostOptions {
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::string shell_prefix = {};  // "ulimit -f 10": run by sh before
};

// A running lora-host; killed when it goes out of scope.
class HostProcess {
 public:
  explicit HostProcess(const std::vector<std::string>& arguments, const HostOptions& options = {});
  ~HostProcess();
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;
  pid_t id() const { return id_; }
  bool running();
  void send(int signal) const;
  HostResult wait(double seconds = 900);  // what hangs; a busy machine is slow
  std::string output() const { return get(log_.path() / "output"); }

 private:
  void take(int status);
  TempDir log_;
  pid_t id_ = -1;
  bool ended_ = false;
  HostResult result_;
};

HostResult run_host(const std::vector<std::string>& arguments, const HostOptions& options = {});

// A training run of a few steps on the bundled model and photos, on the CPU at 64 x 64 pixels. Encoded images and
// prompts are copied from a folder that all of them share, so that each starts in a moment.
class ToyRun {
 public:
  ToyRun();
  // Changes "key: value" of the configuration; the key is written as there ("steps").
  ToyRun& set(const std::string& key, const std::string& value);
  ToyRun& replace(const std::string& text, const std::string& by);
  std::filesystem::path folder() const { return dir_.path(); }  // its own; goes away with it
  std::filesystem::path output() const { return folder() / "runs" / "toy"; }
  std::filesystem::path lora() const { return output() / "toy.safetensors"; }
  std::string& config() { return config_; }
  // The command line that trains, the configuration file being written.
  std::vector<std::string> command(const std::vector<std::string>& more = {}) const;
  HostResult train(const std::vector<std::string>& more = {}) const { return run_host(command(more)); }
  int64_t steps_done() const;  // lines in metrics.csv

 private:
  TempDir dir_;
  std::string config_;
};

// Expects exit code 0; gives the result back.
HostResult expect_trained(HostResult result);

// Waits until metrics.csv has so many steps; false when the process ended before.
bool reaches(HostProcess& process, const ToyRun& run, int64_t steps);

}  // namespace lh::test
