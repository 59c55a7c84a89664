#include "data/video.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/lower.h"
#include "core/module.h"
#include "data/codecs.h"
#include "data/video_reader.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// The module's function, or why there is none.
struct Reading {
  OpenVideo* open = nullptr;
  std::string missing;

  Reading() {
#ifdef LORA_VIDEO
    try {
      open = reinterpret_cast<OpenVideo*>(module_function({"data/video.so", "lora-host-video"}, "lora_video_open"));
    } catch (const Error& error) {
      missing = error.what();
    } catch (const std::runtime_error& error) {
      missing = fmt::format("{} (install FFmpeg's libraries of the version that it names)", error.what());
    }
#else
    missing =
        "this lora-host was built without FFmpeg's libraries (install libavformat-dev, libavcodec-dev and "
        "libswscale-dev and build again)";
#endif
  }
};

const Reading& reading() {
  static const Reading opened;
  return opened;
}

void require_file(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status))
    fail(Code::data, "{}",
         fs::is_symlink(fs::symlink_status(path, ignored)) ? "a link that leads to no file: mend or remove it"
                                                           : "there is no such file");
  if (!fs::is_regular_file(status)) fail(Code::data, "expected a regular file, found a folder, pipe or device");
  if (fs::file_size(path, ignored) == 0) fail(Code::data, "the file is empty (0 bytes): fetch it anew or remove it");
}

// What goes wrong in it names the file.
template <typename Function>
auto naming(const fs::path& path, const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("video {}: {}", path.string(), error.what()));
  } catch (const std::runtime_error& error) {
    throw Error(Code::data, fmt::format("video {}: {}", path.string(), error.what()));
  }
}

std::unique_ptr<VideoReader> opened(const fs::path& path) {
  require_file(path);
  if (reading().open == nullptr) fail(Code::data, "videos cannot be read: {}", reading().missing);
  std::unique_ptr<VideoReader> reader(reading().open(path.c_str(), max_image_pixels));
  const ImageSize said = reader->stream().size;
  if (said.width != 0 || said.height != 0) check_image_size(said.width, said.height);
  return reader;
}

// The next frame, and the first one's size is one that images may have.
bool next(VideoReader& reader, int64_t frame) {
  if (!reader.next()) return false;
  if (frame == 0) check_image_size(reader.stream().size.width, reader.stream().size.height);
  return true;
}

ImageSize upright(const VideoStream& stream) {
  if (stream.orientation >= 5) return {stream.size.height, stream.size.width};
  return stream.size;
}

}  // namespace

bool is_video_name(const fs::path& path) {
  constexpr std::array<std::string_view, 8> names{".mp4", ".avi", ".mov", ".webm", ".mkv", ".wmv", ".m4v", ".flv"};
  return std::ranges::find(names, lower(path.extension().string())) != names.end();
}

bool reads_videos() { return reading().open != nullptr; }

std::string why_no_videos() { return reading().missing; }

VideoInfo video_info(const fs::path& path) {
  return naming(path, [&] {
    const std::unique_ptr<VideoReader> reader = opened(path);
    VideoInfo info;
    for (; next(*reader, info.frames); ++info.frames)
      if (info.frames == max_video_frames)
        fail(Code::data, "more than {} frames: cut it into shorter clips", max_video_frames);
    if (info.frames == 0) fail(Code::data, "there is no frame in it that can be decoded: remove it");
    info.size = upright(reader->stream());
    info.fps = reader->stream().fps;
    return info;
  });
}

VideoFrames::VideoFrames(fs::path path) : path_(std::move(path)) { open(); }

VideoFrames::~VideoFrames() = default;

void VideoFrames::open() {
  naming(path_, [&] { reader_ = opened(path_); });
  decoded_ = 0;
}

Image VideoFrames::at(int64_t number) {
  if (number < 0) fail(Code::internal, "video {}: frame {} is asked for", path_.string(), number);
  if (number < decoded_ - 1) open();
  return naming(path_, [&] {
    for (; decoded_ <= number; ++decoded_)
      if (!next(*reader_, decoded_))
        fail(Code::data, "frame {} is asked for, and it has {} (frames count from 0)", number, decoded_);
    return apply_orientation(reader_->picture(), reader_->stream().orientation);
  });
}

std::vector<int64_t> even_frames(int64_t frames, int64_t count) {
  if (frames < 1 || count < 1) fail(Code::internal, "a clip of {} frames of a video with {}", count, frames);
  if (count == 1) return {(frames - 1) / 2};
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    // The nearest whole number; of two that are as near, the even one.
    const int64_t whole = i * (frames - 1) / (count - 1), twice = 2 * (i * (frames - 1) % (count - 1));
    const bool up = twice > count - 1 || (twice == count - 1 && whole % 2 == 1);
    indices.push_back(whole + (up ? 1 : 0));
  }
  return indices;
}

std::vector<int64_t> frames_at(const VideoInfo& info, double fps, int64_t start, int64_t count) {
  if (!(fps > 0) || start < 0 || count < 1)
    fail(Code::internal, "a clip of {} frames from {} on, {} a second", count, start, fps);
  constexpr double rounding = 1e-9;  // 72000/1001 are three times 24000/1001
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    const double ahead = std::floor(static_cast<double>(i) * info.fps / fps + rounding);
    if (!(info.fps > 0) || !(ahead < static_cast<double>(info.frames - start))) return {};
    indices.push_back(start + static_cast<int64_t>(ahead));
  }
  return indices;
}

}  // namespace lh
