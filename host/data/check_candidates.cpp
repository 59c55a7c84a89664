// Files of candidates are read, hashed and decoded, and what cannot be used is sorted out.
#include <algorithm>
#include <atomic>
#include <exception>
#include <sstream>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/candidates.h"
#include "data/clips.h"
#include "data/codecs.h"
#include "data/further_images.h"
#include "data/read_cut.h"
#include "data/video.h"

namespace lh {
namespace {

// What is kept of an image that can be used: "<hash> <width> <height> <1 for one with more images than one>", of a
// video "<hash> <width> <height> 0 <frames> <frames a second> <1 for one with sound>".
std::string seen_text(const ImageFile& file, bool animated) {
  const std::string text =
      fmt::format("{} {} {} {}", file.content_hash, file.size.width, file.size.height, animated ? 1 : 0);
  return is_video_name(file.path) ? fmt::format("{} {} {} {}", text, file.frames, file.fps, file.sound ? 1 : 0) : text;
}

bool fill_in(ImageFile& file, bool& animated, const std::string& seen) {
  std::istringstream words(seen);
  words >> file.content_hash >> file.size.width >> file.size.height >> animated;
  if (is_video_name(file.path)) words >> file.frames >> file.fps >> file.sound;
  return static_cast<bool>(words);
}

// Fills in what the file says of itself, or why the candidate cannot be used. True for one with more images than one.
bool check_file(ImageFile& file, const KnownImages& known, Candidate& candidate) {
  if (const auto found = known.opened.find(file.path); found != known.opened.end()) {
    file = found->second.file;
    if (!found->second.corrupt.empty()) candidate.corrupt = found->second.corrupt;
    if (!found->second.unreadable.empty()) candidate.unreadable = found->second.unreadable;
    return found->second.animated;
  }
  bool animated = false;
  if (known.seen != nullptr)
    if (const auto seen = known.seen->find(file.path); seen && fill_in(file, animated, *seen)) return animated;
  const std::optional<FileStamp> stamp = stamp_of(file.path);
  std::vector<std::byte> bytes;
  const bool video = is_video_name(file.path);
  try {
    if (!video) bytes = read_image_file(file.path);
  } catch (const Error& error) {
    candidate.unreadable = error.what();
    return false;
  }
  try {
    if (video) {
      file = open_video(file.path);
    } else {
      file.content_hash = sha256_hex(std::span(bytes));
      file.size = image_size(bytes, file.path);
      if (!known.good || !known.good(file.content_hash)) decode_image(bytes, file.path);
      animated = image_is_animated(bytes, file.path);
    }
    if (known.seen != nullptr && stamp) known.seen->note(file.path, *stamp, seen_text(file, animated));
    return animated;
  } catch (const Error& error) {
    candidate.corrupt = error.what();
    return false;
  }
}

void check_mask(ImageFile& mask, const KnownImages& known, Candidate& candidate) {
  check_file(mask, {{}, known.opened, known.seen, known.keys}, candidate);
  const ImageSize &m = mask.size, &i = candidate.file.size;
  if (candidate.corrupt.empty() && candidate.unreadable.empty() && !same_shape(m, i))
    candidate.corrupt =
        fmt::format("mask {}: {} x {} pixels, and its image {} has {} x {}: expected the same shape",
                    mask.path.string(), m.width, m.height, candidate.file.path.filename().string(), i.width, i.height);
}

// A clip's frames are all of the video's own: none is shown twice.
void check_clip(const DatasetConfig& config, int64_t step, Candidate& candidate) {
  if (candidate.corrupt.empty() && candidate.unreadable.empty() && has_videos(config))
    candidate.corrupt = problem_of_clips(config, candidate.file, step);
}

void check_image(Candidate& candidate, const KnownImages& known) {
  candidate.animated = check_file(candidate.file, known, candidate);
  for (auto& [key, file] : candidate.images) {
    if (known.keys.inpaint && key == inpaint_mask_key)
      check_mask(file, known, candidate);
    else
      check_file(file, known, candidate);
  }
  if (candidate.mask) check_mask(candidate.mask->file, known, candidate);
}

}  // namespace

// All images at once on the machine's cores; each result lies in its own candidate.
void check_candidates(const DatasetConfig& config, int64_t frames, const KnownImages& known,
                      std::vector<Candidate>& candidates) {
  constexpr size_t most_threads = 16;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < candidates.size(); i = next++) {
      try {
        check_image(candidates[i], known);
      } catch (...) {
        candidates[i].failure = std::current_exception();
      }
    }
  };
  const size_t threads =
      std::min({most_threads, size_t{std::max(std::thread::hardware_concurrency(), 1u)}, candidates.size()});
  {
    std::vector<std::jthread> helpers;
    try {
      for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // Fewer threads than wanted: this one does the rest.
    }
    work();
  }
  for (const Candidate& candidate : candidates)
    if (candidate.failure) std::rethrow_exception(candidate.failure);
  for (Candidate& candidate : candidates) check_clip(config, frames, candidate);
}

void drop_unusable(const DatasetConfig& config, std::vector<Candidate>& candidates, bool warn, int64_t& skipped,
                   std::vector<std::string>& problems) {
  const auto total = candidates.size();
  size_t unreadable = 0, corrupt = 0;
  for (const Candidate& candidate : candidates) {
    if (!candidate.unreadable.empty()) {
      problems.push_back(candidate.unreadable);
      ++unreadable;
    } else if (!candidate.corrupt.empty()) {
      ++corrupt;
      if (config.strict) {
        problems.push_back(candidate.corrupt + " [strict]");
      } else if (warn) {
        log_warning("{}; left out of the training set", candidate.corrupt);
      }
    }
  }
  std::erase_if(candidates, [](const Candidate& c) { return !c.unreadable.empty() || !c.corrupt.empty(); });
  if (!config.strict) skipped += static_cast<int64_t>(corrupt);
  if (total > 0 && candidates.empty())
    problems.push_back(fmt::format("dataset {}: none of the {} images can be used ({} corrupt, {} unreadable)",
                                   config.folder_path.string(), total, corrupt, unreadable));
}

}  // namespace lh
