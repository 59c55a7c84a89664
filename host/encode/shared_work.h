// Entries of a cache that several processes make together: each makes those that it can claim, so that a fast one makes
// more, and what a killed one left is made by another.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "encode/tensor_cache.h"
#include "world/world.h"

namespace lh {

struct SharedWork {
  const TensorCache& cache;
  std::string what;                        // "encoding images", for the progress bar
  std::vector<std::string> keys;           // that were missing when this process looked
  std::function<void(size_t index)> make;  // puts the entry into the cache
};

// Returns when all entries are there or this process was asked to stop; throws as World::look does. A cache in memory
// is every process's own: each makes all of it.
void make_together(World& world, const SharedWork& work);

}  // namespace lh
