// Clips by datasets[].frame_extraction begin where it says; others are spread over the video, or begin where its
// content decides.
#include "data/clips.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "data/video.h"

namespace lh {
namespace {

// How many frames a video must have for a clip to begin at its first.
int64_t frames_needed(const ImageFile& file, const ClipSpec& clip) {
  if (clip.fps <= 0) return clip.frames;
  const std::vector<int64_t> numbers = frames_at({file.size, max_video_frames, file.fps}, clip.fps, 0, clip.frames);
  return numbers.empty() ? max_video_frames + 1 : numbers.back() + 1;
}

// Of frames that are said to come at `source` a second those that are kept for `fps`: the first of each that fall on
// one frame. musubi-tuner adds up the fraction, and so does this, that the same frames are kept where it is rounded.
std::vector<int64_t> kept_frames(int64_t frames, double source, double fps) {
  std::vector<int64_t> kept;
  const double step = source > 0 ? fps / source : 1;
  double at = 0, before = -1;
  for (int64_t i = 0; i < frames; ++i, at += step) {
    if (std::floor(at) == before) continue;
    before = std::floor(at);
    kept.push_back(i);
  }
  return kept;
}

int64_t frames_left(const DatasetConfig& dataset, const ImageFile& file) {
  return dataset.source_fps > 0 ? std::ssize(kept_frames(file.frames, dataset.source_fps, dataset.fps)) : file.frames;
}

// Where clips of `count` frames begin in a video of `frames`, ascending.
std::vector<int64_t> starts_of(const DatasetConfig& dataset, int64_t frames, int64_t count) {
  const std::string& how = dataset.frame_extraction;
  const int64_t last = frames - count;
  if (how == "head" || how == "full") return {0};
  std::vector<int64_t> starts;
  if (how == "uniform") {
    const int64_t samples = dataset.frame_sample;
    for (int64_t i = 0; i < samples; ++i) {
      const double step = static_cast<double>(last) / static_cast<double>(std::max<int64_t>(samples - 1, 1));
      const int64_t at = i + 1 == samples && i > 0 ? last : static_cast<int64_t>(step * static_cast<double>(i));
      if (starts.empty() || starts.back() != at) starts.push_back(at);
    }
    return starts;
  }
  for (int64_t at = 0; at <= last; at += how == "chunk" ? count : dataset.frame_stride) starts.push_back(at);
  return starts;
}

}  // namespace

bool has_videos(const DatasetConfig& dataset) { return dataset.num_frames > 1 || !dataset.frame_extraction.empty(); }

std::string why_videos(const DatasetConfig& dataset) {
  return dataset.num_frames > 1 ? fmt::format("num_frames is {}", dataset.num_frames)
                                : fmt::format("frame_extraction is {}", dataset.frame_extraction);
}

int64_t frames_that_fit(int64_t frames, int64_t step) { return step > 0 ? (frames - 1) / step * step + 1 : frames; }

std::vector<ClipSpec> clips_of(const DatasetConfig& dataset, const ImageFile& file, int64_t step) {
  if (dataset.frame_extraction.empty()) return {{dataset.num_frames, dataset.shrink_video_to_frames ? 0 : dataset.fps}};
  const int64_t frames = frames_left(dataset, file);
  const int64_t most = dataset.frame_extraction == "full" ? std::min(frames, dataset.num_frames) : dataset.num_frames;
  const int64_t count = frames_that_fit(most, step);
  std::vector<ClipSpec> clips;
  if (frames < 1 || frames < count) return clips;
  for (const int64_t start : starts_of(dataset, frames, count))
    clips.push_back({.frames = count,
                     .fps = dataset.source_fps > 0 ? dataset.fps : 0,
                     .start = start,
                     .source_fps = dataset.source_fps});
  return clips;
}

std::string problem_of_clips(const DatasetConfig& dataset, const ImageFile& file, int64_t step) {
  constexpr const char* fix = "use a longer video, or fewer frames";
  if (!dataset.frame_extraction.empty()) {
    if (!clips_of(dataset, file, step).empty()) return "";
    return fmt::format("video {}: {} frames{}, and num_frames: {} needs {}: {}", file.path.string(),
                       frames_left(dataset, file), dataset.source_fps > 0 ? " that are kept" : "", dataset.num_frames,
                       frames_that_fit(dataset.num_frames, step), fix);
  }
  const ClipSpec clip = clips_of(dataset, file, step).front();
  if (clip.frames == 1) return "";
  if (clip.fps > 0 && file.fps <= 0)
    return fmt::format(
        "video {}: the file does not say how many frames a second it has, which shrink_video_to_frames: false needs",
        file.path.string());
  const int64_t needed = frames_needed(file, clip);
  if (file.frames >= needed) return "";
  const std::string at = clip.fps > 0 ? fmt::format(" at {:.4g} a second", clip.fps) : "";
  return fmt::format("video {}: {} frames at {:.4g} a second, and num_frames: {}{} needs {}: {}", file.path.string(),
                     file.frames, file.fps, clip.frames, at, needed, fix);
}

// Where a clip begins follows from the video's content, so that each run finds it in the cache.
std::vector<int64_t> frames_of(const ImageFile& file, const ClipSpec& clip) {
  if (clip.follows()) {
    std::vector<int64_t> kept = kept_frames(file.frames, clip.source_fps, clip.fps);
    kept.erase(kept.begin(), kept.begin() + std::min(clip.start, std::ssize(kept)));
    kept.resize(static_cast<size_t>(std::min(clip.frames, std::ssize(kept))));
    return kept;
  }
  if (clip.fps <= 0) return even_frames(file.frames, clip.frames);
  const auto places = static_cast<uint64_t>(file.frames - frames_needed(file, clip) + 1);
  Random random(0, Purpose::augment_variant, content_number(file), 0);
  const auto start = static_cast<int64_t>(random.below(places));
  return frames_at({file.size, file.frames, file.fps}, clip.fps, start, clip.frames);
}

// Up to when the frame behind the last would come.
ClipTime time_of(const ImageCut& cut) {
  std::vector<int64_t> frames = frames_of(cut.file, cut.clip);
  frames.resize(static_cast<size_t>(std::min(cut.bucket.frames, std::ssize(frames))));
  const auto count = static_cast<double>(frames.back() + 1 - frames.front());
  return {static_cast<double>(frames.front()) / cut.file.fps, count / cut.file.fps};
}

}  // namespace lh
