// The thread: one loop that moves the parcel, sends and takes beats, and looks who is missed.
#include "world/peers.h"

#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>

#include "core/signals.h"

namespace lh {
namespace {

constexpr auto moment = std::chrono::milliseconds(20);
constexpr double gone_for = 0.2;       // a process that has ended by itself has said so before: its word may be late
constexpr double rescue_seconds = 25;  // that a state may take to be written
constexpr double leaving_seconds = 5;  // that a process may take to end, on a machine with too much to do

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Field 22 of /proc/PID/stat, in ticks since the machine began.
std::string start_of(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  size_t at = text.rfind(')');  // the name may hold anything
  for (int field = 2; at != text.npos && field < 22; ++field) at = text.find(' ', at + 1);
  return at == text.npos ? "" : text.substr(at + 1, text.find(' ', at + 1) - at - 1);
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

RankProcess RankProcess::own() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  struct stat space {};
  ::stat("/proc/self/ns/pid", &space);
  return {.machine = fmt::format("{} {}", first_line("/proc/sys/kernel/random/boot_id"), space.st_ino),
          .host = host.data(),
          .pid = ::getpid(),
          .started = start_of(::getpid())};
}

bool RankProcess::there() const {
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return false;
  return start_of(pid) == started;
}

Peers::Peers(Open open, double silence_seconds) : silence_(silence_seconds) {
  // Signals are the main thread's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, open = std::move(open)] { work(open); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return started_ || !failed_.empty(); });
  if (failed_.empty()) return;
  lock.unlock();
  thread_.join();
  fail(Code::resource, "the processes of this run cannot speak to each other: {}", failed_);
}

Peers::~Peers() {
  const bool ended = pass(1, [&] {
    stopping_ = true;
    return ended_;
  });
  if (ended)
    thread_.join();
  else
    thread_.detach();  // it hangs in the library, and the process ends
}

// Waits, with mutex_ held while it asks.
bool Peers::pass(double seconds, const std::function<bool()>& until) {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  while (!until()) {
    if (seconds_since(start) > seconds) return false;
    changed_.notify_all();
    changed_.wait_for(lock, moment);
  }
  return true;
}

void Peers::know(std::vector<RankProcess> processes) {
  const std::lock_guard lock(mutex_);
  processes_ = std::move(processes);
}

std::string Peers::name(int rank) const {
  if (static_cast<size_t>(rank) >= processes_.size()) return fmt::format("rank {}", rank);
  const RankProcess& p = processes_[static_cast<size_t>(rank)];
  return fmt::format("rank {} ({}, process {})", rank, p.host, p.pid);
}

int64_t Peers::done_by_all() const {
  const std::lock_guard lock(mutex_);
  int64_t sum = own_done_;
  for (int r = 0; r < size_; ++r)
    if (r != rank_) sum += peers_[static_cast<size_t>(r)].last.done;
  return sum;
}

void Peers::lose(int rank, const std::string& how) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.lost || !watching_) return;
  peer.lost = true;
  lost_ += fmt::format("{}{} {}", lost_.empty() ? "" : ", ", name(rank), how);
}

void Peers::raise() const {
  if (!lost_.empty()) throw RankLost(rank_lost, "lost " + lost_);
  for (int r = 0; r < size_; ++r)
    if (const Beat& last = peers_[static_cast<size_t>(r)].last; r != rank_ && last.ended != 0)
      fail(static_cast<Code>(last.ended), "{} has ended with exit status {}: its own message says why", name(r),
           last.ended);
}

void Peers::look() const {
  const std::lock_guard lock(mutex_);
  raise();
}

void Peers::exchange(const std::shared_ptr<Parcel>& parcel, double limit) {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  raise();
  parcel_ = parcel;
  on_its_way_ = false;
  ++own_.exchanges;
  changed_.notify_all();
  while (parcel_) {
    changed_.wait_for(lock, moment);
    if (!parcel_) return;
    if (limit > 0 && seconds_since(start) > limit)
      for (int r = 0; r < size_; ++r)
        if (r != rank_ && peers_[static_cast<size_t>(r)].last.exchanges < own_.exchanges)
          lose(r, fmt::format("does not come to the step that the others are at, after {:.0f} seconds", limit));
    raise();
    check_hurry();
  }
}

bool Peers::rescues() const {
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < rank_; ++r)
    if (!peers_[static_cast<size_t>(r)].lost) return false;
  return true;
}

void Peers::leave_apart() {
  const bool rescuer = rescues();
  {
    const std::lock_guard lock(mutex_);
    watching_ = false;
    if (rescuer) own_.rescued = 1;
    beaten_ = {};
  }
  // A launcher ends all others when one has left, and its status is that of the first: who saves is waited for, and
  // then waits for those that leave, before it ends what hangs.
  if (!rescuer) {
    pass(rescue_seconds,
         [&] { return std::ranges::any_of(peers_, [](const Peer& p) { return p.last.rescued != 0; }); });
    return;
  }
  const RankProcess own = RankProcess::own();
  const auto here = [&](size_t rank) {
    return static_cast<int>(rank) != rank_ && processes_[rank].machine == own.machine && processes_[rank].there();
  };
  pass(0.5, [] { return false; });  // a few beats
  pass(leaving_seconds, [&] {
    for (size_t r = 0; r < peers_.size(); ++r)
      if (!peers_[r].lost && here(r)) return false;
    return true;
  });
  for (size_t r = 0; r < peers_.size(); ++r)
    if (peers_[r].lost && here(r)) ::kill(static_cast<pid_t>(processes_[r].pid), SIGKILL);
}

void Peers::leave(int status) {
  {
    const std::lock_guard lock(mutex_);
    own_.ended = status;
    watching_ = false;
    beaten_ = {};
  }
  pass(0.3, [] { return false; });  // a few beats
}

void Peers::close() {
  {
    const std::lock_guard lock(mutex_);
    watching_ = false;
    closing_ = true;
  }
  pass(10, [&] { return ended_; });
}

void Peers::turn() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (Beat beat; transport_->receive(beat);) {
    Peer& peer = peers_[static_cast<size_t>(beat.from)];
    peer.heard = now;
    peer.last = beat;
    if (beat.stop > 0 && watching_) ask_to_stop(beat.stop > 1);
  }
  const int32_t stop = hurry_requested() ? 2 : stop_requested() ? 1 : 0;
  const bool news = stop != own_.stop || own_done_ != own_.done;
  own_.stop = stop;
  const double interval = std::min(1.0, silence_ / 8);
  if (seconds_since(beaten_) > (news ? interval / 20 : interval)) {
    beaten_ = now;
    own_.from = rank_;
    own_.done = own_done_;
    for (int r = 0; r < size_; ++r)
      if (r != rank_) transport_->send(r, own_);
  }
  if (!watching_) return;
  const RankProcess* own = processes_.empty() ? nullptr : &processes_[static_cast<size_t>(rank_)];
  for (int r = 0; r < size_; ++r) {
    Peer& peer = peers_[static_cast<size_t>(r)];
    if (r == rank_ || peer.lost || peer.last.ended != 0) continue;
    if (seconds_since(peer.heard) > silence_)
      lose(r, fmt::format("has been silent for {:.0f} seconds", silence_));
    else if (own != nullptr && processes_[static_cast<size_t>(r)].machine == own->machine) {
      if (processes_[static_cast<size_t>(r)].there())
        peer.gone.reset();
      else if (!peer.gone)
        peer.gone = now;
      else if (seconds_since(*peer.gone) > gone_for)
        lose(r, "is gone: it crashed or was killed");
    }
  }
}

void Peers::work(const Open& open) {
  try {
    std::unique_ptr<Transport> transport = open();
    const std::lock_guard lock(mutex_);
    rank_ = transport->rank();
    size_ = transport->size();
    library_ = transport->library();
    peers_.assign(static_cast<size_t>(size_), {.heard = Clock::now(), .gone = {}, .last = {}});
    transport_ = std::move(transport);
    started_ = true;
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    failed_ = e.what();
  }
  changed_.notify_all();
  auto looked = Clock::now() - std::chrono::hours(1);
  auto busy_since = Clock::now();
  try {
    while (failed_.empty()) {
      if (Clock::now() - looked > moment / 2) {
        turn();
        looked = Clock::now();
      }
      std::unique_lock lock(mutex_);
      if (stopping_) break;
      if (closing_) {
        lock.unlock();
        transport_->close();
        break;
      }
      // What is given up stays as it is: no rank can be relied on any more.
      if (!parcel_ || !lost_.empty()) {
        changed_.wait_for(lock, moment / 2);
        busy_since = Clock::now();
        continue;
      }
      if (!on_its_way_) transport_->start(*parcel_);
      on_its_way_ = true;
      if (transport_->arrived()) {
        parcel_.reset();
        changed_.notify_all();
        continue;
      }
      lock.unlock();
      // Others may need the processor that this waits on.
      if (seconds_since(busy_since) < 0.002)
        ::sched_yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    if (watching_ && lost_.empty()) lost_ = fmt::format("the way to another rank: {}", e.what());
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace lh
