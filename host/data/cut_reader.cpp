#include "data/cut_reader.h"

#include "data/clips.h"
#include "data/read_cut.h"

namespace lh {

std::vector<Image> CutReader::read(const ImageCut& cut) {
  const ImageFile& file = cut.file;
  if (!is_video_name(file.path)) return {read_cut(cut)};
  if (!video_ || file.path != last_.file.path) {
    video_.reset();  // another one may follow what fails here
    frames_.clear();
    require_unchanged(file);
    video_.emplace(file.path);
  } else if (cut.bucket != last_.bucket || cut.augment != last_.augment) {
    frames_.clear();
  }
  last_ = cut;
  std::vector<int64_t> numbers = frames_of(file, cut.clip);
  numbers.resize(cut.only_first ? 1 : static_cast<size_t>(cut.bucket.frames));
  std::map<int64_t, Image> known = std::move(frames_);
  frames_.clear();
  std::vector<Image> clip;
  for (const int64_t number : numbers) {
    if (auto found = known.extract(number))
      frames_.insert(std::move(found));
    else if (!frames_.contains(number))
      frames_.emplace(number, cut_of(video_->at(number), cut));
    clip.push_back(frames_.at(number));
  }
  return clip;
}

}  // namespace lh
