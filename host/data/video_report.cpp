#include "data/video_report.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/bytes.h"
#include "data/made_with.h"

namespace lh {

VideoReport inspect_video(const std::filesystem::path& path) {
  VideoReport report{.info = video_info(path)};
  report.bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  return report;
}

std::string report_text(const VideoReport& report) {
  const VideoInfo& info = report.info;
  return fmt::format("  {} frames of {} x {} pixels{}, {}, {}\n", info.frames, info.size.width, info.size.height,
                     info.fps > 0 ? fmt::format(", {:.4g} a second", info.fps) : "",
                     info.sound ? "with sound" : "without sound", size_text(report.bytes)) +
         made_with(info.comment);
}

nlohmann::json report_json(const VideoReport& report) {
  const VideoInfo& info = report.info;
  return {{"format", "video"},         {"bytes", report.bytes}, {"size", {info.size.width, info.size.height}},
          {"frames", info.frames},     {"fps", info.fps},       {"sound", info.sound},
          {"parameters", info.comment}};
}

}  // namespace lh
