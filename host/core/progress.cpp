// Draws the bar on a terminal, and a line now and then where there is none.
#include "core/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <mutex>

namespace lh {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double redraw_interval = 0.1;
constexpr int64_t longest_bar = 24, shortest_bar = 4;

std::atomic<bool> bar_on_stderr{false};

double since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

int64_t terminal_width(int fd) {
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    text.remove_prefix(static_cast<size_t>(wrote));
  }
}

std::string speed_text(double per_second) {
  if (!(per_second > 0) || !std::isfinite(per_second)) return "? it/s";
  return per_second >= 1 ? fmt::format("{:.1f} it/s", per_second) : fmt::format("{:.1f} s/it", 1 / per_second);
}

std::string bar_text(double part, int64_t length) {
  const auto full = static_cast<size_t>(std::lround(part * static_cast<double>(length)));
  return std::string(full, '#') + std::string(static_cast<size_t>(length) - full, ' ');
}

// The first `columns` characters of UTF-8 text.
std::string cut(const std::string& text, int64_t columns) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) continue;
    if (columns-- == 0) break;
  }
  return text.substr(0, end);
}

int64_t columns_of(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Those that fit, each with a space before it. A detail begins with a word in small letters: "loss 0.512 lr 1.0e-04".
std::string leading_details(const std::string& details, int64_t columns) {
  std::string fit;
  for (size_t at = 0; at < details.size();) {
    size_t end = details.find(' ', at);
    while (end != details.npos && std::islower(static_cast<unsigned char>(details[end + 1])) == 0)
      end = details.find(' ', end + 1);
    std::string next = fit + " " + details.substr(at, end - at);
    if (columns_of(next) > columns) return fit;
    fit = std::move(next);
    at = end == details.npos ? end : end + 1;
  }
  return fit;
}

}  // namespace

std::string clock_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto whole = static_cast<int64_t>(seconds);
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
               : fmt::format("{:02}:{:02}", minutes, whole % 60);
}

std::string training_details(double loss, double lr, int64_t memory_mib) {
  std::string text = fmt::format("loss {:.3f} lr {:.1e}", loss, lr);
  if (memory_mib >= 0) text += fmt::format(" mem {} MiB", memory_mib);
  return text;
}

std::string progress_line(const ProgressState& state, int64_t width) {
  const double part =
      state.total > 0 ? std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0) : 0;
  const double speed = state.seconds > 0 ? static_cast<double>(state.done - state.first) / state.seconds : 0;
  const double left = speed > 0 ? static_cast<double>(state.total - state.done) / speed : -1;
  const std::string front = fmt::format("{}{:4}%", state.name, static_cast<int>(part * 100));
  const std::string count = fmt::format(" {}/{}", state.done, state.total);
  std::string back =
      fmt::format("{} [{}<{}, {}]", count, clock_text(state.seconds), clock_text(left), speed_text(speed));
  if (!state.details.empty()) back += " " + state.details;
  const int64_t room = width > 0 ? std::min(width - columns_of(front) - columns_of(back) - 2, longest_bar) : 10;
  std::string line = room < shortest_bar ? front + back : front + "|" + bar_text(part, room) + "|" + back;
  if (width <= 0 || columns_of(line) <= width) return line;
  line = fmt::format("{}{} <{}", front, count, clock_text(left));
  return cut(line + leading_details(state.details, width - columns_of(line)), width);
}

Progress::Progress(std::string name, int64_t total, int64_t first, Target target) noexcept
    : target_(target), terminal_(isatty(target.fd) != 0), start_(Clock::now()), drawn_(start_) {
  state_.name = std::move(name);
  state_.total = total;
  state_.first = state_.done = first;
}

Progress::~Progress() { finish(); }

void Progress::update(int64_t done, const std::string& details) noexcept {
  try {
    state_.details = details;
  } catch (...) {  // out of memory: the old text stays
  }
  const bool fresh = state_.done == state_.first;
  state_.done = done;
  const double interval = terminal_ ? redraw_interval : target_.plain_interval;
  if (fresh || since(drawn_) >= interval) draw(false);
}

void Progress::finish() noexcept {
  if (finished_) return;
  finished_ = true;
  if (state_.done > state_.first) draw(true);
}

void Progress::draw(bool last) noexcept {
  try {
    state_.seconds = since(start_);
    drawn_ = Clock::now();
    if (terminal_) {  // the last column stays free: some terminals wrap there
      const std::string line = progress_line(state_, terminal_width(target_.fd) - 1);
      write_all(target_.fd, "\r" + line + "\x1b[K" + (last ? "\n" : ""));
      if (target_.fd == STDERR_FILENO) bar_on_stderr = !last;
    } else if (state_.done != drawn_done_) {  // not the last line once more
      write_all(target_.fd, progress_line(state_, 0) + "\n");
    }
    drawn_done_ = state_.done;
  } catch (...) {  // a missing bar harms nobody
  }
}

void Progress::make_room() noexcept {
  if (bar_on_stderr.exchange(false)) write_all(STDERR_FILENO, "\r\x1b[K");
}

}  // namespace lh
