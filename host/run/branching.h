// Enqueues nodes as a plan has them side by side: told of each node that comes, forks, joins and changes branches.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "run/fork.h"
#include "run/side_by_side.h"

namespace lh {

class Branching {
 public:
  Branching(Device& device, const std::vector<SideBySide>& sides)
      : device_(device), side_(sides.begin()), end_(sides.end()) {}

  // Node n is enqueued next; they come in order, not all of them.
  void before(int64_t n) {
    for (; side_ != end_ && side_->last < n; ++side_) join();
    if (side_ == end_ || n < side_->first) return;
    if (!fork_) fork_ = std::make_unique<Fork>(device_, 2);
    fork_->enter(std::ranges::binary_search(side_->aside, n) ? 1 : 0);
  }
  void join() {
    if (fork_) fork_->join();
    fork_.reset();
  }

 private:
  Device& device_;
  std::vector<SideBySide>::const_iterator side_, end_;
  std::unique_ptr<Fork> fork_;
};

}  // namespace lh
