// Work that the device may do side by side (lk_fork).
#pragma once

#include "run/device.h"

namespace lh {

class Fork {
 public:
  // One branch is no fork.
  Fork(Device& device, int32_t branches) : device_(device), open_(branches > 1) {
    if (open_) device_.check(lk_fork(device_.context(), branches), "fork");
  }
  ~Fork() {
    if (open_) lk_join(device_.context());
  }
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;
  void enter(int32_t branch) const {
    if (open_) device_.check(lk_branch(device_.context(), branch), "branch");
  }
  void join() {
    if (open_) device_.check(lk_join(device_.context()), "join");
    open_ = false;
  }

 private:
  Device& device_;
  bool open_;
};

}  // namespace lh
