// Sizes as people read them.
#pragma once

#include <cstdint>

namespace lh {

inline double mib(int64_t bytes) { return static_cast<double>(bytes) / 1048576; }

}  // namespace lh
