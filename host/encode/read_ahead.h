// Reads the pixels of cuts that come next while the device works on those before.
#pragma once

#include <future>
#include <map>
#include <mutex>
#include <vector>

#include "data/cut_reader.h"

namespace lh {

class ReadAhead {
 public:
  // cuts: in the order in which most of them will be taken; they outlive this.
  explicit ReadAhead(const std::vector<const ImageCut*>& cuts) : cuts_(cuts) {}
  // CutReader::read of that cut; what fails with one is thrown when it is taken.
  std::vector<Image> take(size_t index);

 private:
  void start(size_t index, std::launch how);

  const std::vector<const ImageCut*>& cuts_;
  std::mutex of_videos_;  // whose clips share what is decoded
  CutReader videos_;
  std::map<size_t, std::future<std::vector<Image>>> under_way_;
};

}  // namespace lh
