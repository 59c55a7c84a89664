// Starts processes, waits with a limit, and keeps a cache that toy runs share.
#include "support/run_host.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "support/device.h"
#include "support/paths.h"

extern char** environ;

namespace lh::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_text = R"(name: toy
training_folder: FOLDER/runs
device: DEVICE
model:
  name_or_path: SOURCE/examples/toy_flux/flux_toy.safetensors
  vae_path: SOURCE/examples/toy_flux/ae.safetensors
  clip_path: SOURCE/examples/toy_flux/clip_l.safetensors
  t5_path: SOURCE/examples/toy_flux/t5xxl.safetensors
  max_sequence_length: 32
network:
  linear: 2
  dropout: 0
datasets:
  - folder_path: SOURCE/examples/demo/photos
    resolution: 64
    caption_dropout_rate: 0
    flip_x: false
train:
  batch_size: 1
  gradient_accumulation: 1
  steps: 6
  lr: 1e-3
  optimizer: adamw
  dtype: fp32
  seed: 42
sample:
  sample_every: 0
  sample_steps: 2
  width: 64
  height: 64
  prompts: []
save:
  save_every: 2
  max_step_saves_to_keep: 2
)";

std::string config_for(const TempDir& dir) {
  return replaced(replaced(replaced(config_text, "FOLDER", dir.path().string()), "SOURCE", source_dir()), "DEVICE",
                  tested_device());
}

// Made once in a process: the cache after a run of one step with everything that other runs may ask for.
const fs::path& shared_cache() {
  static const TempDir dir;
  static const fs::path cache = [] {
    std::string config = config_for(dir);
    config = replaced(config, "flip_x: false", "flip_x: true");
    config = replaced(config, "caption_dropout_rate: 0", "caption_dropout_rate: 0.5");
    config = replaced(config, "prompts: []", "prompts: [a photo]");
    config = replaced(config, "steps: 6", "steps: 1");
    put(dir / "train.yaml", config);
    const HostResult result = run_host({"train", "--config", (dir / "train.yaml").string()});
    EXPECT_EQ(result.code, 0) << result.output;
    return dir / "runs" / "cache";
  }();
  return cache;
}

}  // namespace

HostProcess::HostProcess(const std::vector<std::string>& arguments, const HostOptions& options) {
  std::vector<std::string> words{std::string(binary_dir()) + "/bin/lora-host"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (!options.shell_prefix.empty())
    words.insert(words.begin(), {"/bin/sh", "-c", options.shell_prefix + "; exec \"$0\" \"$@\""});
  std::vector<std::string> variables;
  const auto given = [&](const std::string& name) {
    return std::ranges::any_of(options.environment, [&](const auto& v) { return v.first == name; });
  };
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string text = *v;
    if (!given(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (std::string& w : words) argv.push_back(w.data());
  for (std::string& v : variables) envp.push_back(v.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, (log_ / "output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  const int error = ::posix_spawn(&id_, argv[0], &files, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    ADD_FAILURE() << argv[0] << " cannot be started: " << std::strerror(error);
    ended_ = true;
  }
}

HostProcess::~HostProcess() {
  if (running()) {
    send(SIGKILL);
    wait();
  }
}

void HostProcess::take(int status) {
  ended_ = true;
  if (WIFEXITED(status))
    result_.code = WEXITSTATUS(status);
  else
    result_.signal = WTERMSIG(status);
}

bool HostProcess::running() {
  int status = 0;
  if (!ended_ && ::waitpid(id_, &status, WNOHANG) == id_) take(status);
  return !ended_;
}

void HostProcess::send(int signal) const {
  if (!ended_) ::kill(id_, signal);
}

HostResult HostProcess::wait(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (std::chrono::steady_clock::now() < end) continue;
    send(SIGKILL);
    result_.timed_out = true;
  }
  result_.output = output();
  return result_;
}

HostResult run_host(const std::vector<std::string>& arguments, const HostOptions& options) {
  return HostProcess(arguments, options).wait();
}

ToyRun::ToyRun() : config_(config_for(dir_)) {
  fs::create_directory(dir_ / "runs");
  fs::copy(shared_cache(), dir_ / "runs" / "cache", fs::copy_options::recursive);
}

ToyRun& ToyRun::set(const std::string& key, const std::string& value) {
  const size_t at = config_.find(" " + key + ": ");
  if (at == config_.npos) {
    ADD_FAILURE() << "the configuration has no " << key;
    return *this;
  }
  const size_t from = at + key.size() + 3;
  config_.replace(from, config_.find('\n', from) - from, value);
  return *this;
}

ToyRun& ToyRun::replace(const std::string& text, const std::string& by) {
  EXPECT_NE(config_.find(text), config_.npos) << text;
  config_ = replaced(config_, text, by);
  return *this;
}

std::vector<std::string> ToyRun::command(const std::vector<std::string>& more) const {
  put(dir_ / "train.yaml", config_);
  std::vector<std::string> words{"train", "--config", (dir_ / "train.yaml").string()};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

int64_t ToyRun::steps_done() const {
  const std::string rows = get(output() / "metrics.csv");
  return std::max<int64_t>(0, std::ranges::count(rows, '\n') - 1);  // without the header
}

HostResult expect_trained(HostResult result) {
  EXPECT_EQ(result.code, 0) << "signal " << result.signal << (result.timed_out ? ", timed out" : "") << "\n"
                            << result.output;
  return result;
}

bool reaches(HostProcess& process, const ToyRun& run, int64_t steps) {
  while (process.running()) {
    if (run.steps_done() >= steps) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace lh::test
