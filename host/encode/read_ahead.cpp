#include "encode/read_ahead.h"

#include <algorithm>
#include <system_error>
#include <thread>

namespace lh {
namespace {

// Of what is read and not yet taken; one cut may be more.
constexpr int64_t most_bytes = int64_t{512} << 20;  // six photos of 24 megapixels
constexpr unsigned most_threads = 8;

// Of the file's picture, or one frame, and of what is cut out of it.
int64_t bytes_of(const ImageCut& cut) {
  const Bucket& bucket = cut.bucket;
  return (cut.file.size.width * cut.file.size.height + bucket.frames * bucket.height * bucket.width) * 3;
}

}  // namespace

void ReadAhead::start(size_t index, std::launch how) {
  const ImageCut& cut = *cuts_[index];
  under_way_.try_emplace(index, std::async(how, [this, &cut] {
                           if (!is_video_name(cut.file.path)) return CutReader().read(cut);
                           const std::lock_guard lock(of_videos_);
                           return videos_.read(cut);
                         }));
}

std::vector<Image> ReadAhead::take(size_t index) {
  std::erase_if(under_way_, [&](const auto& entry) { return entry.first < index; });  // others took those
  if (!under_way_.contains(index)) start(index, std::launch::deferred);               // the caller waits for it anyway
  const size_t most = std::clamp(std::thread::hardware_concurrency(), 1U, most_threads);
  int64_t bytes = 0;
  for (size_t next = index + 1; next < cuts_.size() && next - index <= most; ++next) {
    bytes += bytes_of(*cuts_[next]);
    if (bytes > most_bytes && next > index + 1) break;
    if (under_way_.contains(next)) continue;
    try {
      start(next, std::launch::async);
    } catch (const std::system_error&) {  // no thread is to be had: all is read when it is taken
      break;
    }
  }
  return under_way_.extract(index).mapped().get();
}

}  // namespace lh
