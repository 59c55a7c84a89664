// Each begins at its own part of the list and goes round it.
#include "encode/shared_work.h"

#include <chrono>
#include <optional>
#include <thread>

#include "core/progress.h"
#include "core/signals.h"
#include "io/claims.h"

namespace lh {
namespace {

constexpr auto between_looks = std::chrono::milliseconds(50);

void make_alone(const SharedWork& work) {
  Progress progress(work.what, static_cast<int64_t>(work.keys.size()));
  for (size_t i = 0; i < work.keys.size() && !stop_requested(); ++i) {
    work.make(i);  // what is made stays in the cache
    progress.update(static_cast<int64_t>(i) + 1, "");
  }
}

}  // namespace

void make_together(World& world, const SharedWork& work) {
  if (world.alone_here() || !work.cache.on_disk()) return make_alone(work);
  const size_t count = work.keys.size();
  const size_t first = count * static_cast<size_t>(world.rank()) / static_cast<size_t>(world.size());
  Claims claims(work.cache.folder());
  std::optional<Progress> progress;
  if (world.first()) progress.emplace(work.what, static_cast<int64_t>(count));
  const int64_t before = world.done_by_all(), earlier = world.done();
  int64_t made = 0;
  std::vector<size_t> open;
  for (size_t i = 0; i < count; ++i) open.push_back((first + i) % count);
  while (!open.empty()) {
    std::vector<size_t> others;
    const int64_t made_before = made;
    for (const size_t i : open) {
      if (stop_requested()) return;
      world.look();
      const std::string& key = work.keys[i];
      if (work.cache.contains(key)) continue;
      if (!claims.take(key)) {
        others.push_back(i);
        continue;
      }
      if (!work.cache.contains(key)) {  // it may have come just before
        work.make(i);
        world.done(earlier + ++made);
      }
      claims.release(key);
      if (progress) progress->update(std::min(static_cast<int64_t>(count), world.done_by_all() - before), "");
    }
    open = std::move(others);
    if (progress) progress->update(std::min(static_cast<int64_t>(count), world.done_by_all() - before), "");
    if (!open.empty() && made == made_before) std::this_thread::sleep_for(between_looks);
  }
  if (progress) progress->update(static_cast<int64_t>(count), "");
}

}  // namespace lh
