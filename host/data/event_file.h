// TensorBoard event files: scalars and images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/image.h"

namespace lh {

// Appends records to <folder>/events.out.tfevents.<start>.<host>.<pid>; each record is one write call.
class EventFile {
 public:
  explicit EventFile(const std::filesystem::path& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  void scalar(const std::string& tag, int64_t step, float value);
  void image(const std::string& tag, int64_t step, const Image& image);

 private:
  void record(const std::string& event);
  int fd_ = -1;
};

}  // namespace lh
