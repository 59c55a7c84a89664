// Which clips a dataset takes of its videos.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/sample.h"

namespace lh {

// Are the folder's videos trained on, in place of its images?
bool has_videos(const DatasetConfig& dataset);
std::string why_videos(const DatasetConfig& dataset);  // "num_frames is 33"

// The clips of a video. step: as of SizeStep, frames behind the first one that fill a place of the latents.
// Empty where it has too few frames.
std::vector<ClipSpec> clips_of(const DatasetConfig& dataset, const ImageFile& file, int64_t step);
// How many frames of `frames` fill places of the latents.
int64_t frames_that_fit(int64_t frames, int64_t step);
// What is wrong with the video for such clips; empty: nothing.
std::string problem_of_clips(const DatasetConfig& dataset, const ImageFile& file, int64_t step);
// When a clip is seen in its video, whose file says how many frames a second it has: in seconds from the first frame
// on.
struct ClipTime {
  double start = 0, seconds = 0;
};
ClipTime time_of(const ImageCut& cut);
// The numbers of a clip's frames in its video, ascending.
std::vector<int64_t> frames_of(const ImageFile& file, const ClipSpec& clip);

}  // namespace lh
