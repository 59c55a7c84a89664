// What a video file says of itself, for people and for tools: size, frames, sound and how it was made.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/video.h"

namespace lh {

struct VideoReport {
  int64_t bytes = 0;
  VideoInfo info;
};

// Decodes all of it. Throws as video_info does.
VideoReport inspect_video(const std::filesystem::path& path);
std::string report_text(const VideoReport& report);
nlohmann::json report_json(const VideoReport& report);

}  // namespace lh
