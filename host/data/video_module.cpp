#include "data/video_module.h"

#include "core/module.h"
#include "data/video.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

VideoModule loaded() {
  VideoModule module;
#ifdef LORA_VIDEO
  constexpr Module file{"data/video.so", "lora-host-video"};
  const auto bind = [&](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(module_function(file, name));
  };
  try {
    bind(module.open, "lora_video_open");
    bind(module.sound, "lora_sound_open");
    bind(module.resample, "lora_sound_resample");
    bind(module.write, "lora_movie_write");
  } catch (const Error& error) {
    module.missing = error.what();
  } catch (const std::runtime_error& error) {
    module.missing = fmt::format("{} (install FFmpeg's libraries of the version that it names)", error.what());
  }
#else
  module.missing =
      "this lora-host was built without FFmpeg's libraries (install libavformat-dev, libavcodec-dev, libswscale-dev "
      "and libswresample-dev and build again)";
#endif
  return module;
}

}  // namespace

const VideoModule& video_module() {
  static const VideoModule module = loaded();
  return module;
}

bool reads_videos() { return video_module().missing.empty(); }

std::string why_no_videos() { return video_module().missing; }

void require_video(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status))
    fail(Code::data, "{}",
         fs::is_symlink(fs::symlink_status(path, ignored)) ? "a link that leads to no file: mend or remove it"
                                                           : "there is no such file");
  if (!fs::is_regular_file(status)) fail(Code::data, "expected a regular file, found a folder, pipe or device");
  if (fs::file_size(path, ignored) == 0) fail(Code::data, "the file is empty (0 bytes): fetch it anew or remove it");
  if (!reads_videos()) fail(Code::data, "videos cannot be read: {}", why_no_videos());
}

}  // namespace lh
