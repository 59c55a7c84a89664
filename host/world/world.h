// The processes that train one run together (ranks, as MPI calls them), as one of them sees the others. Without a
// launcher there is one, and nothing here does anything.
//
// What is marked [together] is called by all ranks in the same order. It throws RankLost where one of them has gone or
// hangs, lh::Error with the code of one that has ended, and Interrupted after a second signal to any of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "world/peers.h"

namespace lh {

class World {
 public:
  virtual ~World() = default;
  static World& alone();

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool alone_here() const { return size_ == 1; }
  bool first() const { return rank_ == 0; }       // the one that writes
  int local_rank() const { return local_rank_; }  // among those of this machine
  int local_size() const { return local_size_; }

  // [together] What each rank gives, in the order of ranks.
  virtual std::vector<std::string> gather(const std::string& mine) { return {mine}; }
  // [together] Bytes from each to each. limit: as Peers::exchange has it.
  virtual void exchange(const std::shared_ptr<Parcel>& parcel, double limit) = 0;
  std::string of_first(const std::string& text);  // [together] what the first rank gives
  bool any(bool mine);                            // [together]
  void meet() { any(false); }                     // [together]

  virtual void look() const {}  // throws as the calls above do
  // How much this rank has done of work that is shared, and how much all have, as far as is known here.
  int64_t done() const { return done_; }
  virtual void done(int64_t count) { done_ = count; }
  virtual int64_t done_by_all() const { return done_; }
  virtual std::string name(int rank) const;

  // The end of a run: together; with an error of this rank; or after RankLost or Interrupted, each for itself, where
  // the first rank that is left saves before (`rescues`).
  virtual void finish() {}
  virtual void leave(int) {}
  virtual bool rescues() const { return first(); }
  virtual void leave_apart() {}

 protected:
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;

 private:
  int64_t done_ = 0;
};

// [together] A number, or a few, of each rank, in the order of ranks.
template <class T>
std::vector<T> gather_values(World& world, const T& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all;
  for (const std::string& bytes : world.gather({reinterpret_cast<const char*>(&own), sizeof own}))
    std::memcpy(&all.emplace_back(), bytes.data(), std::min(bytes.size(), sizeof own));
  return all;
}

// The world that the launcher of this process has made (mpirun, srun), or a world of one. Throws
// lh::Error(Code::resource) where there are others that cannot be reached. There must be no fork after it.
std::unique_ptr<World> join_world();
// A world over any transport; ranks that are silent for so long are lost.
std::unique_ptr<World> world_over(const Peers::Open& open, double silence_seconds);
// Has a launcher started this process as one of several?
bool launched_with_others();
// "MPI: Open MPI 4.1.4", or that there is none, and how to get it.
std::string world_library_text();

// [together] Throws lh::Error(Code::config) that names ranks and values where these facts are not the same on all.
void require_same(World& world, const std::map<std::string, std::string>& facts);
// [together] Throws lh::Error(ranks_differ) that names the ranks whose weights, of which this is a digest, are not
// those of most.
void require_same_weights(World& world, const std::string& digest, int64_t step);

}  // namespace lh
