// Pixels of one cut after another.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "data/sample.h"
#include "data/video.h"

namespace lh {

class CutReader {
 public:
  // The frames of a cut, not mirrored: one of an image, those of a video's clip, or its first frame where that is all
  // that counts. Throws as read_cut() does. Of a video whose clips come one after another what was decoded for one is
  // not decoded again for the next, and the file is compared with what it was when the first of them comes.
  std::vector<Image> read(const ImageCut& cut);

 private:
  std::optional<VideoFrames> video_;
  ImageCut last_;
  std::map<int64_t, Image> frames_;  // of the last clip, by their number in the video
};

}  // namespace lh
