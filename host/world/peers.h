// The other processes, watched by a thread of its own, which alone speaks to them: a rank that computes, or hangs, goes
// on being heard or missed. Each rank sends every other one a beat; a rank is lost when it has been silent for too
// long, when its process is gone from this machine, when the library says so, or when it does not come to an exchange.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "world/transport.h"

namespace lh {

// Exit statuses that only runs of several processes have; docs/errors.md lists them with the others.
inline constexpr Code rank_lost{13};     // another process of the run crashed, was killed or hangs
inline constexpr Code ranks_differ{14};  // processes of a run have other weights than each other

// Where a rank runs.
struct RankProcess {
  std::string machine;  // the same for those that see each other's process numbers
  std::string host;
  int64_t pid = 0;
  std::string started = {};  // tells it from a later process of the same number
  static RankProcess own();
  bool there() const;  // only for one of this machine
};

// Another rank has crashed, was killed, hangs or cannot be reached.
class RankLost : public Error {
 public:
  using Error::Error;
};

class Peers {
 public:
  using Open = std::function<std::unique_ptr<Transport>()>;
  // Throws lh::Error(Code::resource) where the library does not start.
  Peers(Open open, double silence_seconds);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& library() const { return library_; }
  void know(std::vector<RankProcess> processes);  // of all ranks
  std::string name(int rank) const;               // "rank 1 (host gpu-3, process 4711)"

  // Waits until everything has arrived. limit: seconds after which the ranks that have not come are lost; 0: none.
  // Throws RankLost, lh::Error with the code of a rank that has ended, Interrupted.
  void exchange(const std::shared_ptr<Parcel>& parcel, double limit);
  void look() const;  // throws as exchange does, without waiting
  void done(int64_t count) { own_done_ = count; }
  int64_t done_by_all() const;

  // After RankLost or Interrupted: is this the one that saves, the first of those that are left?
  bool rescues() const;
  // Then ends the part of this rank: the one that saves tells that it has, the others wait for that. What hangs on this
  // machine is ended.
  void leave_apart();
  void leave(int status);  // the others are told that this rank ends with an error
  void close();            // all ranks; nobody is missed from here on

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    Clock::time_point heard;
    std::optional<Clock::time_point> gone;  // since when its process is
    Beat last;
    bool lost = false;
  };
  void work(const Open& open);
  void turn();  // beats in and out, and a look at who is missed
  void lose(int rank, const std::string& how);
  void raise() const;  // with mutex_ held
  bool pass(double seconds, const std::function<bool()>& until);

  double silence_;
  int rank_ = 0, size_ = 1;
  std::string library_;
  std::vector<RankProcess> processes_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Transport> transport_;  // of the thread alone
  std::shared_ptr<Parcel> parcel_;        // being exchanged; kept where it was given up, since it may still arrive
  bool on_its_way_ = false, started_ = false;
  std::vector<Peer> peers_;
  std::string lost_, failed_;  // who is lost and how; what kept the thread from starting
  bool watching_ = true, closing_ = false, stopping_ = false, ended_ = false;
  Beat own_;
  std::atomic<int64_t> own_done_{0};
  Clock::time_point beaten_{};
  std::thread thread_;
};

}  // namespace lh
