#include "data/sound.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/error.h"
#include "data/video.h"
#include "data/video_module.h"

namespace lh {
namespace {

constexpr size_t channels = 2;
constexpr float loudest = 0.999f;

// What a track has from sample `begin` to `end` of each channel, with silence where it has none.
struct Heard {
  int64_t rate = 0;  // samples a second; 0: the track is empty
  std::vector<float> samples;
  float peak = 0;  // of as much as was decoded
};

Heard listen(SoundReader& reader, const SoundPart& part) {
  Heard heard;
  int64_t begin = 0, end = 0, at = 0;
  while (reader.next()) {
    if (heard.rate == 0) {
      heard.rate = reader.rate();
      const auto place = [&](double seconds) { return std::llround(seconds * static_cast<double>(heard.rate)); };
      begin = place(part.start);
      end = begin + place(part.seconds);
      at = place(reader.at());
      heard.samples.assign(static_cast<size_t>(end - begin) * channels, 0.0f);
    }
    const std::span<const float> decoded = reader.samples();
    for (const float v : decoded) heard.peak = std::max(heard.peak, std::abs(v));
    const auto count = static_cast<int64_t>(decoded.size() / channels);
    const int64_t from = std::max(begin, at), to = std::min(end, at + count);
    if (from < to)
      std::ranges::copy(
          decoded.subspan(static_cast<size_t>(from - at) * channels, static_cast<size_t>(to - from) * channels),
          heard.samples.begin() + (from - begin) * static_cast<int64_t>(channels));
    at += count;
    if (at >= end && !part.normalized) break;
  }
  return heard;
}

}  // namespace

std::vector<float> read_sound(const std::filesystem::path& path, const SoundPart& part) {
  return about_video(path, [&] {
    require_video(path);
    const std::unique_ptr<SoundReader> reader(video_module().sound(path.c_str()));
    if (reader == nullptr) fail(Code::data, "there is no sound track in it");
    Heard heard = listen(*reader, part);
    if (heard.rate == 0) fail(Code::data, "its sound track is empty: remove the track, or save the video again");
    if (part.normalized && heard.peak > 0)
      for (float& v : heard.samples) v *= loudest / heard.peak;
    // The rate at which what is heard would last as long as what is wanted.
    const int64_t played = std::llround(part.seconds * static_cast<double>(heard.rate) *
                                        static_cast<double>(part.rate) / static_cast<double>(part.count));
    std::vector<float> samples;
    if (played == part.rate)
      samples = std::move(heard.samples);
    else
      video_module().resample(heard.samples, played, part.rate, samples);
    samples.resize(static_cast<size_t>(part.count) * channels);
    for (float& v : samples) v = std::clamp(v, -1.0f, 1.0f);
    return samples;
  });
}

std::vector<std::byte> encode_movie(std::span<const Image> frames, double fps, const Sound& sound,
                                    const std::string& comment) {
  if (const std::string why = why_no_videos(); !why.empty()) fail(Code::config, "a clip with sound: {}", why);
  std::vector<std::byte> file;
  try {
    video_module().write({frames, fps, sound.samples, sound.rate, comment}, file);
  } catch (const std::runtime_error& error) {
    throw Error(Code::resource, fmt::format("a clip with sound: {}", error.what()));
  }
  return file;
}

}  // namespace lh
