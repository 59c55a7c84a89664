#include "encode/read_ahead.h"

#include <algorithm>
#include <thread>

namespace lh {
namespace {

// Of what is read and not yet taken; one cut may be more.
constexpr int64_t most_bytes = int64_t{256} << 20;
constexpr unsigned most_threads = 8;

int64_t bytes_of(const Bucket& bucket) { return bucket.frames * bucket.height * bucket.width * 3; }

}  // namespace

void ReadAhead::start(size_t index) {
  const ImageCut& cut = *cuts_[index];
  under_way_.try_emplace(index, std::async(std::launch::async, [this, &cut] {
                           if (!is_video_name(cut.file.path)) return CutReader().read(cut);
                           const std::lock_guard lock(of_videos_);
                           return videos_.read(cut);
                         }));
}

std::vector<Image> ReadAhead::take(size_t index) {
  std::erase_if(under_way_, [&](const auto& entry) { return entry.first < index; });  // others took those
  if (!under_way_.contains(index)) start(index);
  const size_t most = std::clamp(std::thread::hardware_concurrency(), 1U, most_threads);
  int64_t bytes = 0;
  for (size_t next = index + 1; next < cuts_.size() && next - index <= most; ++next) {
    bytes += bytes_of(cuts_[next]->bucket);
    if (bytes > most_bytes && next > index + 1) break;
    if (!under_way_.contains(next)) start(next);
  }
  return under_way_.extract(index).mapped().get();
}

}  // namespace lh
