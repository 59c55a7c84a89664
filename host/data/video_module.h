// The module that speaks to FFmpeg's libraries (data/video), and what is said where it fails.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "data/video_reader.h"

namespace lh {

// Its functions; none where `missing` says why, and what to install.
struct VideoModule {
  OpenVideo* open = nullptr;
  OpenSound* sound = nullptr;
  ResampleSound* resample = nullptr;
  WriteMovie* write = nullptr;
  std::string missing;
};
const VideoModule& video_module();

// Throws lh::Error(Code::data) where there is no such file, it is empty, or videos cannot be read here.
void require_video(const std::filesystem::path& path);

// What goes wrong in it names the file.
template <typename Function>
auto about_video(const std::filesystem::path& path, const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("video {}: {}", path.string(), error.what()));
  } catch (const std::runtime_error& error) {
    throw Error(Code::data, fmt::format("video {}: {}", path.string(), error.what()));
  }
}

}  // namespace lh
