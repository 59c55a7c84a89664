// Time that only goes on, for what is measured or waited for.
#pragma once

#include <chrono>

namespace lh {

inline double seconds_now() {  // since some moment
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace lh
