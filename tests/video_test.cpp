// Videos in: exact pixels of uncompressed ones, colours, order and orientation of compressed ones, damaged files, and
// which frames make a clip.
#include "data/video.h"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "data/codecs.h"
#include "support/video_files.h"
#include "support/written_images.h"

namespace lh::test::video_test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

#define NEEDS_VIDEOS \
  if (!reads_videos()) GTEST_SKIP() << "no FFmpeg: " << why_no_videos()

class Video : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const FileBytes& bytes) const {
    write_file(folder_ / name, bytes);
    return folder_ / name;
  }
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }

 private:
  TempFolder folder_{"lora_video"};
};

template <typename Function>
std::string error_of(const Function& function) {
  try {
    function();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::data);
    return error.what();
  }
}

std::string info_error(const std::filesystem::path& path) {
  return error_of([&] { video_info(path); });
}

FileBytes first(const FileBytes& file, size_t bytes) {
  return {file.begin(), file.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

// The colours in the middle of the quarters, from the top left on.
std::array<std::array<int, 3>, 4> quarters(const Image& image) {
  std::array<std::array<int, 3>, 4> colours{};
  for (size_t i = 0; i < 4; ++i) {
    const int64_t x = image.width * (i % 2 == 1 ? 3 : 1) / 4, y = image.height * (i >= 2 ? 3 : 1) / 4;
    for (size_t c = 0; c < 3; ++c) colours[i][c] = image.rgb[static_cast<size_t>(3 * (y * image.width + x)) + c];
  }
  return colours;
}

void expect_same_colours(const Image& image, const Image& want, const std::string& what) {
  ASSERT_EQ(image.width, want.width) << what;
  ASSERT_EQ(image.height, want.height) << what;
  ASSERT_EQ(image.rgb.size(), want.rgb.size()) << what;
  constexpr int bound = 4;  // of what compression leaves; the other matrix of colours is 15 away
  const auto got = quarters(image), wanted = quarters(want);
  for (size_t i = 0; i < 4; ++i)
    for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(got[i][c], wanted[i][c], bound) << what << ", quarter " << i;
}

TEST_F(Video, UncompressedPixelsAreExact) {
  NEEDS_VIDEOS;
  std::vector<Image> frames;
  for (int64_t i = 0; i < 5; ++i) {
    frames.push_back(test_picture(21, 13));
    for (uint8_t& v : frames.back().rgb) v = static_cast<uint8_t>(v + 31 * i);
  }
  const auto path = file("a.AVI", avi(frames, {30000, 1001}));
  const VideoInfo info = video_info(path);
  EXPECT_EQ(info.size.width, 21);
  EXPECT_EQ(info.size.height, 13);
  EXPECT_EQ(info.frames, 5);
  EXPECT_DOUBLE_EQ(info.fps, 30000.0 / 1001);
  VideoFrames read(path);
  for (const int64_t i : {0, 1, 2, 3, 4, 1, 1, 4, 0})
    EXPECT_EQ(read.at(i).rgb, frames[static_cast<size_t>(i)].rgb) << i;
}

TEST_F(Video, CompressedFramesInTheirOrderAndColours) {
  NEEDS_VIDEOS;
  for (const std::string name : {"h264.mp4", "vp9.webm"}) {
    const auto path = file(name, video(name));
    const VideoInfo info = video_info(path);
    EXPECT_EQ(info.size.width, 64) << name;
    EXPECT_EQ(info.size.height, 48) << name;
    EXPECT_EQ(info.frames, 12) << name;
    EXPECT_NEAR(info.fps, 24000.0 / 1001, 0.01) << name;
    VideoFrames read(path), again(path);
    for (int64_t i = 0; i < 12; ++i) {
      const Image frame = read.at(i);
      expect_same_colours(frame, film_frame(i), fmt::format("{}, frame {}", name, i));
      if (i == 7 || i == 11) {
        EXPECT_EQ(again.at(i).rgb, frame.rgb) << name;
      }
    }
  }
}

// Where a box of an MP4 begins, behind its name.
size_t behind(const FileBytes& file, std::string_view name) {
  for (size_t at = 0; at + 4 <= file.size(); ++at)
    if (std::memcmp(file.data() + at, name.data(), 4) == 0) return at + 4;
  ADD_FAILURE() << "no " << name;
  return 4;
}

void put(FileBytes& file, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) file[at + i] = static_cast<std::byte>(value >> (24 - 8 * i));
}

TEST_F(Video, TurnedAndMirroredAsTheMatrixSays) {
  NEEDS_VIDEOS;
  const FileBytes upright = video("h264.mp4");
  constexpr uint32_t one = 1 << 16, minus = 0u - one;
  struct Case {
    uint32_t a, b, c, d;  // x' = ax + cy, y' = bx + dy
    int orientation;
  };
  for (const Case& m :
       {Case{one, 0, 0, one, 1}, Case{minus, 0, 0, one, 2}, Case{minus, 0, 0, minus, 3}, Case{one, 0, 0, minus, 4},
        Case{0, one, one, 0, 5}, Case{0, one, minus, 0, 6}, Case{0, minus, minus, 0, 7}, Case{0, minus, one, 0, 8}}) {
    FileBytes turned = upright;
    const size_t matrix = behind(turned, "tkhd") + 40;
    put(turned, matrix, m.a);
    put(turned, matrix + 4, m.b);
    put(turned, matrix + 12, m.c);
    put(turned, matrix + 16, m.d);
    const auto path = file("turned.mp4", turned);
    const Image want = apply_orientation(film_frame(3), m.orientation);
    EXPECT_EQ(video_info(path).size.width, want.width) << m.orientation;
    EXPECT_EQ(video_info(path).size.height, want.height) << m.orientation;
    expect_same_colours(VideoFrames(path).at(3), want, fmt::format("orientation {}", m.orientation));
  }
}

TEST_F(Video, PixelsThatAreNotSquareAreStretched) {
  NEEDS_VIDEOS;
  for (const auto& [wide, high] : {std::pair{4u, 3u}, {3u, 4u}}) {
    FileBytes shaped = video("h264.mp4");
    const size_t box = behind(shaped, "btrt");  // which says nothing that is needed
    std::memcpy(shaped.data() + box - 4, "pasp", 4);
    put(shaped, box, wide);
    put(shaped, box + 4, high);
    const auto path = file("shaped.mp4", shaped);
    const Image want = film_frame(2, wide > high ? 85 : 64, wide > high ? 48 : 64);
    EXPECT_EQ(video_info(path).size.width, want.width);
    EXPECT_EQ(video_info(path).size.height, want.height);
    expect_same_colours(VideoFrames(path).at(2), want, fmt::format("{}:{}", wide, high));
  }
}

TEST_F(Video, FilesThatAreNone) {
  EXPECT_THAT(info_error(path("none.mp4")), AllOf(HasSubstr("none.mp4"), HasSubstr("no such file")));
  EXPECT_THAT(info_error(path("")), HasSubstr("found a folder"));
  EXPECT_THAT(info_error(file("empty.mp4", {})), AllOf(HasSubstr("empty.mp4"), HasSubstr("0 bytes")));
  const auto whole = file("a.avi", avi(film(2)));
  if (!reads_videos()) {
    EXPECT_THAT(info_error(whole), AllOf(HasSubstr("videos cannot be read"), HasSubstr("install")));
    return;
  }
  const FileBytes text = Written().text(std::string(5000, 'a')).file();
  EXPECT_THAT(info_error(file("text.mp4", text)), AllOf(HasSubstr("text.mp4"), HasSubstr("expected a video")));
  FileBytes garbage(20000);
  for (size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<std::byte>(i * i * 2654435761u >> 13);
  EXPECT_THAT(info_error(file("garbage.mkv", garbage)), HasSubstr("garbage.mkv"));
  EXPECT_THAT(info_error(file("picture.mp4", encode_png(test_picture(32, 32)))), HasSubstr("expected a video"));
  // A list of other files, which would be opened.
  const FileBytes playlist = Written().text("#EXTM3U\n#EXTINF:1,\n" + whole.string() + "\n#EXT-X-ENDLIST\n").file();
  EXPECT_THAT(info_error(file("list.mp4", playlist)), HasSubstr("expected a video"));
  EXPECT_THAT(info_error(file("none.avi", avi({}))), HasSubstr("no frame in it"));
}

TEST_F(Video, DamagedOnes) {
  NEEDS_VIDEOS;
  const FileBytes plain = avi(film(4)), packed = video("h264.mp4");
  const size_t frame = 64 * 48 * 3;
  EXPECT_THAT(info_error(file("cut.avi", first(plain, plain.size() - frame / 2))),
              AllOf(HasSubstr("cut.avi"), HasSubstr("damaged or cut-short video: frame 3"), HasSubstr("save")));
  EXPECT_EQ(video_info(file("fewer.avi", first(plain, plain.size() - frame - 8))).frames, 3);
  for (const std::string name : {"h264.mp4", "vp9.webm"})
    for (const size_t percent : {20, 35, 50, 60, 70, 80, 90, 99}) {
      const FileBytes whole = video(name);
      EXPECT_THAT(info_error(file("cut", first(whole, whole.size() * percent / 100))),
                  AnyOf(HasSubstr("damaged or cut-short video"), HasSubstr("no frame in it")))
          << name << " " << percent << "%";
    }
  FileBytes changed = packed;
  for (size_t i = 900; i < 1500; ++i) changed[behind(packed, "mdat") + i - 600] = std::byte{0x5a};
  EXPECT_THAT(info_error(file("changed.mp4", changed)), HasSubstr("damaged or cut-short video: frame"));
  // Only what is in front of the damage is read.
  const auto cut = file("cut.avi", first(plain, plain.size() - frame / 2));
  VideoFrames read(cut);
  EXPECT_EQ(read.at(2).rgb, film_frame(2).rgb);
  EXPECT_THAT(error_of([&] { read.at(3); }), HasSubstr("frame 3"));

  uint32_t state = 7;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (int i = 0; i < 60; ++i) {
    FileBytes any = i % 2 == 0 ? packed : video("vp9.webm");
    for (uint32_t n = 1 + next() % 4; n > 0; --n) any[next() % any.size()] = static_cast<std::byte>(next() & 0xff);
    info_error(file("any", any));  // some can be read; none crashes
  }
}

TEST_F(Video, Limits) {
  NEEDS_VIDEOS;
  FileBytes large = avi(film(1));
  constexpr size_t format_at = 12 + 12 + 8 + 56 + 12 + 8 + 56 + 8;  // of BITMAPINFOHEADER
  const uint32_t width = 20000;
  std::memcpy(large.data() + format_at + 4, &width, 4);
  EXPECT_THAT(info_error(file("large.avi", large)), HasSubstr("20000 x 48 pixels exceed"));

  const FileBytes too_long = avi(std::vector<Image>(static_cast<size_t>(max_video_frames + 1), film_frame(0, 2, 2)));
  EXPECT_THAT(info_error(file("long.avi", too_long)), HasSubstr("more than 100000 frames"));
  constexpr size_t last_frame = 8 + 2 * 8;
  EXPECT_EQ(video_info(file("longest.avi", first(too_long, too_long.size() - last_frame))).frames, max_video_frames);
  const auto path = file("a.avi", avi(film(3)));
  EXPECT_THAT(error_of([&] { VideoFrames(path).at(3); }),
              AllOf(HasSubstr("a.avi"), HasSubstr("frame 3 is asked for, and it has 3")));
  EXPECT_THROW(VideoFrames(path).at(-1), Error);
}

TEST(VideoNames, ByTheirExtension) {
  for (const char* name : {"a.mp4", "b.AVI", "c.mov", "d.WebM", "e.mkv", "f.wmv", "g.m4v", "h.flv"})
    EXPECT_TRUE(is_video_name(name)) << name;
  for (const char* name : {"a.gif", "mp4", "a.mp4.txt", "a", "a.mp3", ".mp4"})
    EXPECT_FALSE(is_video_name(name)) << name;
}

TEST(VideoClips, SpreadEvenly) {
  EXPECT_THAT(even_frames(10, 1), ElementsAre(4));
  EXPECT_THAT(even_frames(9, 1), ElementsAre(4));
  EXPECT_THAT(even_frames(1, 1), ElementsAre(0));
  EXPECT_THAT(even_frames(10, 2), ElementsAre(0, 9));
  EXPECT_THAT(even_frames(5, 5), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(even_frames(4, 3), ElementsAre(0, 2, 3));        // 1.5
  EXPECT_THAT(even_frames(6, 3), ElementsAre(0, 2, 5));        // 2.5
  EXPECT_THAT(even_frames(8, 5), ElementsAre(0, 2, 4, 5, 7));  // 1.75, 3.5, 5.25
  EXPECT_THAT(even_frames(100, 4), ElementsAre(0, 33, 66, 99));
  EXPECT_THAT(even_frames(2, 5), ElementsAre(0, 0, 0, 1, 1));  // 0.25, 0.5, 0.75
  EXPECT_THAT(even_frames(1, 3), ElementsAre(0, 0, 0));
}

TEST(VideoClips, InRealTime) {
  const auto video = [](int64_t frames, double fps) { return VideoInfo{.size = {8, 8}, .frames = frames, .fps = fps}; };
  EXPECT_THAT(frames_at(video(10, 24), 24, 2, 4), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(frames_at(video(10, 30), 15, 0, 5), ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(frames_at(video(10, 30), 24, 0, 5), ElementsAre(0, 1, 2, 3, 5));  // 1.25, 2.5, 3.75
  EXPECT_THAT(frames_at(video(10, 16), 24, 1, 5), ElementsAre(1, 1, 2, 3, 3));  // 0.67, 1.33, 2, 2.67
  EXPECT_THAT(frames_at(video(99, 72000.0 / 1001), 24000.0 / 1001, 0, 5), ElementsAre(0, 3, 6, 9, 12));
  EXPECT_THAT(frames_at(video(9, 30), 15, 0, 5), ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(frames_at(video(8, 30), 15, 0, 5), IsEmpty());
  EXPECT_THAT(frames_at(video(9, 30), 15, 1, 5), IsEmpty());
  EXPECT_THAT(frames_at(video(9, 0), 15, 0, 5), IsEmpty());
}

}  // namespace
}  // namespace lh::test::video_test
