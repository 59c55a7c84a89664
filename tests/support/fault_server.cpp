// Starts the preloaded process and speaks to it through two pipes and a page of shared memory.
#include "support/fault_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "support/io_files.h"
#include "support/paths.h"

extern char** environ;

namespace lh::test {
namespace {

namespace fs = std::filesystem;

struct CallFacts {
  const char* name;
  int classes;
};
constexpr CallFacts call_facts[] = {
#define FACTS(name, flags) {#name, flags},
    FAULT_CALLS(FACTS)
#undef FACTS
};

[[noreturn]] void broken(const std::string& what) { throw std::runtime_error("fault server: " + what); }

const char* error_name(int error) {
  switch (error) {
    case EIO: return "EIO";
    case ENOSPC: return "ENOSPC";
    case EINTR: return "EINTR";
    default: return std::strerror(error);  // NOLINT(concurrency-mt-unsafe): glibc's is safe
  }
}

}  // namespace

const char* fault_call_name(uint8_t call) { return call_facts[call].name; }
int fault_call_class(uint8_t call) { return call_facts[call].classes; }

std::string Fault::text() const {
  switch (action) {
    case fault_none: return "no fault";
    case fault_kill: return fmt::format("killed before call {}", nth);
    case fault_tear: return fmt::format("killed within call {}", nth);
    case fault_fail: return fmt::format("{} at call {}", error_name(error), nth);
    case fault_stuck: return fmt::format("{} from call {} on", error_name(error), nth);
    case fault_short: return fmt::format("half of the bytes at call {}", nth);
    case fault_alloc: return fmt::format("no memory at allocation {}", nth);
    case fault_alloc_stuck: return fmt::format("no memory from allocation {} on", nth);
    case fault_lie: return fmt::format("nothing written at call {}", nth);
    case fault_crash: return fmt::format("a crash at call {}", nth);
    default: return fmt::format("a hang at call {}", nth);
  }
}

FaultServer::FaultServer(fs::path watched, std::vector<std::string> environment) : watched_(std::move(watched)) {
  scratch_ = watched_.string() + ".driver";
  fs::create_directories(scratch_);
  const fs::path memory = scratch_ / "shared";
  const int fd = ::open(memory.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof *shared_) != 0) broken(memory.string());
  shared_ = static_cast<fault_shared*>(::mmap(nullptr, sizeof *shared_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ::close(fd);

  environment.push_back("LD_PRELOAD=" + (fs::path(binary_dir()) / "lib/lora-host-test/shims/faults.so").string());
  environment.push_back("LORA_FAULT_SHARED=" + memory.string());
  for (const char* set : {"OMP_WAIT_POLICY=passive", "OPENBLAS_NUM_THREADS=1"})
    environment.emplace_back(set);  // lora-host does not start itself again
  for (char** v = environ; *v != nullptr; ++v) environment.emplace_back(*v);
  std::vector<char*> variables;
  for (std::string& v : environment) variables.push_back(v.data());
  variables.push_back(nullptr);
  std::string program = (fs::path(binary_dir()) / "bin/lora-host").string();
  char* arguments[] = {program.data(), nullptr};

  int to[2], from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) broken("no pipe");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, to[0], 0);
  posix_spawn_file_actions_adddup2(&files, from[1], 1);
  if (::posix_spawn(&id_, program.c_str(), &files, nullptr, arguments, variables.data()) != 0) broken(program);
  posix_spawn_file_actions_destroy(&files);
  ::close(to[0]);
  ::close(from[1]);
  requests_ = to[1];
  answers_ = from[0];
}

FaultServer::~FaultServer() {
  ::close(requests_);  // the server ends with its input
  ::waitpid(id_, nullptr, 0);
  ::close(answers_);
  ::munmap(shared_, sizeof *shared_);
  std::error_code none;
  fs::remove_all(scratch_, none);
}

bool FaultServer::read_answer(void* data, size_t size, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (auto* at = static_cast<char*>(data); size > 0;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd one{answers_, POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return false;
    const ssize_t got = ::read(answers_, at, size);
    if (got <= 0) broken("it ended");
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

FaultedRun FaultServer::run(const std::vector<std::string>& arguments, const Fault& fault, double seconds) {
  std::string words("lora-host", sizeof "lora-host");
  for (const std::string& word : arguments) words.append(word.c_str(), word.size() + 1);
  fault_request request{};
  request.action = fault.action;
  request.error = fault.error;
  request.nth = fault.nth;
  request.word_count = static_cast<uint32_t>(arguments.size() + 1);
  request.word_bytes = static_cast<uint32_t>(words.size());
  const fs::path log = scratch_ / "output";
  if (watched_.string().size() >= sizeof request.folder || log.string().size() >= sizeof request.log)
    broken("the folder's name is too long");
  std::strcpy(request.folder, watched_.c_str());
  std::strcpy(request.log, log.c_str());
  shared_->calls = shared_->allocations = shared_->fired = 0;
  const std::string message = std::string(reinterpret_cast<const char*>(&request), sizeof request) + words;
  if (::write(requests_, message.data(), message.size()) != static_cast<ssize_t>(message.size()))
    broken("it takes no request");

  int32_t child = 0, status = 0;
  if (!read_answer(&child, sizeof child, 60)) broken("it does not answer");
  FaultedRun run;
  run.hung = !read_answer(&status, sizeof status, seconds);
  if (run.hung) {
    ::kill(-child, SIGKILL);
    ::kill(child, SIGKILL);  // before it has a group of its own
    if (!read_answer(&status, sizeof status, 60)) broken("a process cannot be killed");
  }
  if (WIFEXITED(status))
    run.code = WEXITSTATUS(status);
  else
    run.signal = WTERMSIG(status);
  run.fired = shared_->fired > 0;
  if (run.fired) run.place = shared_->place;
  const auto calls = std::min<int64_t>(shared_->calls, fault_most_calls);
  run.calls.assign(shared_->kinds, shared_->kinds + calls);
  run.allocations = shared_->allocations;
  run.output = get(log);
  return run;
}

}  // namespace lh::test
