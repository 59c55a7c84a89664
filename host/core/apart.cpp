// fork, and a pipe that the answer comes back through: without one the child did not get to its end.
#include "core/apart.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cfenv>
#include <chrono>
#include <clocale>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include "core/error.h"

namespace lh {
namespace {

constexpr char done = 'd', threw = 'e';  // first byte of the answer; after `threw` the code

// What belongs to the whole process.
struct Surroundings {
  std::string folder, locale;
  mode_t mask = 0;
  int rounding = 0;
  unsigned floating = 0;  // traps, and what becomes of numbers below the smallest normal one
  std::array<void (*)(int), 6> handlers{};

  static Surroundings now() {
    constexpr std::array<int, 6> signals{SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGFPE, SIGCHLD};
    Surroundings s;
    std::error_code none;
    s.folder = std::filesystem::current_path(none).string();
    s.locale = std::setlocale(LC_ALL, nullptr);  // NOLINT(concurrency-mt-unsafe): there are no threads
    s.mask = ::umask(0);
    ::umask(s.mask);
    s.rounding = std::fegetround();
#if defined(__x86_64__)
    s.floating = _mm_getcsr() & ~unsigned{_MM_EXCEPT_MASK};  // without the flags that say what has happened
#endif
    for (size_t i = 0; i < signals.size(); ++i) {
      struct sigaction action {};
      ::sigaction(signals[i], nullptr, &action);
      s.handlers[i] = action.sa_handler;
    }
    return s;
  }

  const char* changed_since(const Surroundings& before) const {
    if (folder != before.folder) return "the current folder";
    if (locale != before.locale) return "the locale";
    if (mask != before.mask) return "the umask";
    if (rounding != before.rounding) return "how floating-point numbers are rounded";
    if (floating != before.floating) return "how floating-point numbers are computed (traps, flush to zero)";
    if (handlers != before.handlers) return "a signal handler";
    return nullptr;
  }
};

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) fail(Code::resource, "no pipe can be made: {}", std::strerror(errno));
  }
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int end(size_t which) const { return ends_[which]; }
  void close(size_t which) {
    if (ends_[which] >= 0) ::close(std::exchange(ends_[which], -1));
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    text.remove_prefix(static_cast<size_t>(put));
  }
}

std::string answer_of(const std::string& name, const std::function<std::string()>& body) {
  const auto error = [](Code code, const std::string& text) {
    return std::string{threw, static_cast<char>(code)} + text;
  };
  const Surroundings before = Surroundings::now();
  try {
    const std::string text = body();
    if (const char* what = Surroundings::now().changed_since(before))
      return error(Code::plugin, fmt::format("{}: changed {} of the process, which is not its own", name, what));
    return done + text;
  } catch (const Error& e) {
    return error(e.code(), e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    return error(Code::resource, fmt::format("{}: {}", e.path1().string(), e.code().message()));
  } catch (const std::bad_alloc&) {
    return error(Code::resource, name + ": there is no memory left for it");
  } catch (const std::exception& e) {
    return error(Code::plugin, fmt::format("{}: {}", name, e.what()));
  }
}

// Reads until both pipes are at their end; false when time is up.
bool collect(const Pipe& answers, const Pipe& prints, double seconds, std::string& answer, std::string& printed) {
  constexpr size_t most_printed = 4096;
  std::array<pollfd, 2> watched{pollfd{answers.end(0), POLLIN, 0}, pollfd{prints.end(0), POLLIN, 0}};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (watched[0].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    if (::poll(watched.data(), watched.size(), static_cast<int>(std::min<int64_t>(left.count(), 1000))) <= 0) continue;
    for (pollfd& one : watched) {
      if (one.fd < 0 || one.revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t got = ::read(one.fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      std::string& text = &one == &watched[0] ? answer : printed;
      if (got <= 0)
        one.fd = -1;
      else if (&one == &watched[0] || text.size() < most_printed)
        text.append(buffer.data(), static_cast<size_t>(got));
    }
  }
  return true;
}

}  // namespace

std::string run_apart(const std::string& name, double seconds, const std::function<std::string()>& body) {
  Pipe answers, prints;
  const pid_t child = ::fork();
  if (child < 0) fail(Code::resource, "{}: no process can be made to try it in: {}", name, std::strerror(errno));
  if (child == 0) {
    ::dup2(prints.end(1), STDOUT_FILENO);
    ::dup2(prints.end(1), STDERR_FILENO);
    write_all(answers.end(1), answer_of(name, body));
    ::_exit(0);
  }
  answers.close(1);
  prints.close(1);
  std::string answer, printed;
  const bool in_time = collect(answers, prints, seconds, answer, printed);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) fail(Code::plugin, "{}: did not come to an end within {} seconds", name, seconds);
  if (answer.starts_with(done)) return answer.substr(1);
  if (answer.starts_with(threw) && answer.size() > 1) throw Error(static_cast<Code>(answer[1]), answer.substr(2));
  // The handler of crashes has named the call.
  constexpr std::string_view own = "lora-host: error: ";
  if (const size_t at = printed.find(own); at != printed.npos)
    fail(Code::plugin, "{}", printed.substr(at + own.size(), printed.find('\n', at) - at - own.size()));
  fail(Code::plugin, "{}: {}", name, how_it_ended(status));
}

std::string how_it_ended(int wait_status) {
  if (WIFSIGNALED(wait_status))
    return fmt::format("crashed with signal {} ({})", WTERMSIG(wait_status), ::strsignal(WTERMSIG(wait_status)));
  return fmt::format("ended the process (exit {}), which is not its own", WEXITSTATUS(wait_status));
}

}  // namespace lh
