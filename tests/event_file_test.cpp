// Event files byte by byte: framing, checksums and the messages inside.
#include "data/event_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "data/crc32c.h"
#include "support/io_files.h"

namespace lh::event_file_test {
namespace {

namespace fs = std::filesystem;

uint64_t little_endian(const std::string& bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i > 0; --i) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i - 1));
  return value;
}

// The messages of a file, each frame checked.
std::vector<std::string> messages(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = static_cast<size_t>(little_endian(bytes, at, 8));
    EXPECT_EQ(little_endian(bytes, at + 8, 4), masked_crc32c(bytes.substr(at, 8)));
    out.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(out.back().size(), length);
    EXPECT_EQ(little_endian(bytes, at + 12 + length, 4), masked_crc32c(out.back()));
    at += 16 + length;
  }
  return out;
}

class EventFileTest : public testing::Test {
 protected:
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }
  const test::TempDir temp_;
  const fs::path folder_ = temp_ / "events";
};

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST_F(EventFileTest, WritesVersionScalarsAndImages) {
  const Image image{2, 1, {255, 0, 0, 0, 255, 0}};
  {
    EventFile file(folder_);
    file.scalar("loss", 300, 0.5f);
    file.image("sample", 1, image);
  }
  ASSERT_EQ(files().size(), 1u);
  EXPECT_TRUE(files()[0].filename().string().starts_with("events.out.tfevents."));
  const auto events = messages(files()[0]);
  ASSERT_EQ(events.size(), 3u);
  // Wall time is a double in field 1; the rest is fixed.
  for (const std::string& event : events) {
    EXPECT_EQ(event[0], '\x09');
    EXPECT_GT(std::bit_cast<double>(little_endian(event, 1, 8)), 1.6e9);
  }
  EXPECT_EQ(events[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  const std::string scalar("\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f", 18);
  EXPECT_EQ(events[1].substr(9), scalar);
  const auto png = encode_png(image);
  const std::string payload(reinterpret_cast<const char*>(png.data()), png.size());
  const size_t at = events[2].find("\x08\x01\x10\x02\x18\x03\x22");
  ASSERT_NE(at, std::string::npos);
  EXPECT_NE(events[2].find(payload, at), std::string::npos);
  EXPECT_NE(events[2].find("\x0a\x06sample\x22"), std::string::npos);
}

TEST_F(EventFileTest, SeveralFilesInOneSecondDoNotCollide) {
  EventFile a(folder_), b(folder_), c(folder_);
  a.scalar("x", 0, 1);
  b.scalar("x", 0, 2);
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(EventFileTest, UnwritableFolderIsAnError) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THROW(EventFile(folder_ / "file"), Error);
}

}  // namespace
}  // namespace lh::event_file_test
