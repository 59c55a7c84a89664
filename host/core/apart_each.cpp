// Children that are handed one task after another, each over a socket of its own. What a child was at when it ended is
// known, so that only this task is lost, and another child takes its place.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <optional>

#include "core/apart.h"
#include "core/error.h"

namespace lh {
namespace {

using Clock = std::chrono::steady_clock;
using Body = std::function<std::string(size_t)>;

constexpr char has_text = 'd', has_error = 'e';

// In front of each answer.
struct Head {
  uint64_t size = 0;
  char kind = has_text;
};

bool send_all(int socket, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = ::send(socket, at, size, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    size -= static_cast<size_t>(put);
  }
  return true;
}

// A task's number is one small message, which comes as a whole.
std::optional<uint64_t> next_task(int socket) {
  uint64_t task = 0;
  ssize_t got = 0;
  do got = ::recv(socket, &task, sizeof task, MSG_WAITALL);
  while (got < 0 && errno == EINTR);
  return got == sizeof task ? std::optional(task) : std::nullopt;
}

// What a child does until its parent hangs up. A crash is the parent's to tell.
[[noreturn]] void serve(int socket, const Body& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::signal(crash, SIG_DFL);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) {
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
  }
  while (const std::optional<uint64_t> task = next_task(socket)) {
    Head head;
    std::string text;
    try {
      text = body(static_cast<size_t>(*task));
    } catch (const std::bad_alloc&) {
      head.kind = has_error;
      text = "there is no memory left for it";
    } catch (const std::exception& error) {
      head.kind = has_error;
      text = error.what();
    }
    head.size = text.size();
    if (!send_all(socket, &head, sizeof head) || !send_all(socket, text.data(), text.size())) break;
  }
  ::_exit(0);
}

class Child {
 public:
  Child() = default;
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool busy() const { return task_.has_value(); }
  size_t task() const { return *task_; }
  int socket() const { return socket_; }
  Clock::time_point since() const { return since_; }

  void hand(size_t task, const Body& body) {
    if (id_ < 0) start(body);
    task_ = task;
    since_ = Clock::now();
    received_.clear();
    const uint64_t number = task;
    send_all(socket_, &number, sizeof number);  // where the child is gone, receive() finds it so
  }

  // Takes what has come. The answer, once all of it has.
  std::optional<ApartAnswer> receive() {
    std::array<char, 1 << 16> buffer;
    const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) return std::nullopt;
    if (got <= 0) return ApartAnswer{"", how_it_ended(end())};
    received_.append(buffer.data(), static_cast<size_t>(got));
    Head head;
    if (received_.size() < sizeof head) return std::nullopt;
    std::memcpy(&head, received_.data(), sizeof head);
    if (received_.size() < sizeof head + head.size) return std::nullopt;
    task_.reset();
    std::string text = received_.substr(sizeof head);
    return head.kind == has_text ? ApartAnswer{std::move(text), ""} : ApartAnswer{"", std::move(text)};
  }

  // Ends the process and gives what wait() says: of one that was ending by itself, how.
  int end() {
    task_.reset();
    if (id_ < 0) return 0;
    ::close(socket_);
    ::kill(id_, SIGKILL);
    int status = 0;
    while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
    return status;
  }

 private:
  void start(const Body& body) {
    std::array<int, 2> ends;
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      fail(Code::resource, "no socket can be made for a process: {}", std::strerror(errno));
    id_ = ::fork();
    if (id_ == 0) {
      ::close(ends[0]);
      serve(ends[1], body);
    }
    ::close(ends[1]);
    socket_ = ends[0];
    if (id_ < 0) {
      ::close(socket_);
      fail(Code::resource, "no further process can be made: {}", std::strerror(errno));
    }
  }

  pid_t id_ = -1;
  int socket_ = -1;
  std::optional<size_t> task_;
  Clock::time_point since_;
  std::string received_;
};

// Milliseconds until the first of them has had its time.
int patience(const std::vector<Child>& children, std::chrono::duration<double> allowed) {
  double least = 1;
  for (const Child& child : children)
    if (child.busy())
      least = std::min(least, (allowed - std::chrono::duration<double>(Clock::now() - child.since())).count());
  return static_cast<int>(std::max(least, 0.0) * 1000) + 1;
}

}  // namespace

std::vector<ApartAnswer> each_apart(size_t tasks, size_t children, double seconds, const Body& body) {
  const std::chrono::duration<double> allowed(seconds);
  std::vector<ApartAnswer> answers(tasks);
  std::vector<Child> crew(std::clamp<size_t>(children, 1, std::max<size_t>(tasks, 1)));
  for (size_t next = 0, answered = 0; answered < tasks;) {
    for (Child& child : crew)
      if (!child.busy() && next < tasks) child.hand(next++, body);
    std::vector<pollfd> watched;
    watched.reserve(crew.size());
    for (const Child& child : crew) watched.push_back({child.busy() ? child.socket() : -1, POLLIN, 0});
    ::poll(watched.data(), watched.size(), patience(crew, allowed));
    for (size_t i = 0; i < crew.size(); ++i) {
      Child& child = crew[i];
      if (!child.busy()) continue;
      const size_t task = child.task();
      std::optional<ApartAnswer> answer;
      if (watched[i].revents != 0) answer = child.receive();
      if (!answer && Clock::now() - child.since() > allowed) {
        child.end();
        answer = {"", fmt::format("did not come to an end within {} seconds", seconds)};
      }
      if (!answer) continue;
      answers[task] = std::move(*answer);
      ++answered;
    }
  }
  return answers;
}

}  // namespace lh
