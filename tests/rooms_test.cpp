// The rooms of the host: arrows between its folders point down, so none of them can be part of a cycle.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/paths.h"

namespace lh::test::rooms_test {
namespace {

namespace fs = std::filesystem;

// From the bottom up; a folder includes those in front of it. docs/architecture.md says what each holds.
const std::vector<std::string> rooms = {"core",    "world",  "config", "io",     "lora", "data",
                                        "graph",   "ops",    "passes", "plugin", "run",  "diffusion",
                                        "compile", "encode", "sample", "train",  "cli"};

const fs::path host = fs::path(lh::test::source_dir()) / "host";

int64_t floor_of(const std::string& room) {
  const auto found = std::ranges::find(rooms, room);
  return found == rooms.end() ? -1 : found - rooms.begin();
}

// Folders of the host that the file includes: 'ops' of a line with "ops/ops.h".
std::vector<std::string> included_rooms(const fs::path& file) {
  std::vector<std::string> list;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("#include \"")) continue;
    const std::string path = line.substr(10, line.find('"', 10) - 10);
    if (const size_t slash = path.find('/'); slash != std::string::npos && fs::exists(host / path))
      list.push_back(path.substr(0, slash));
  }
  return list;
}

TEST(Rooms, ArrowsPointDown) {
  int64_t files = 0;
  for (const fs::directory_entry& folder : fs::directory_iterator(host)) {
    if (!folder.is_directory()) continue;
    const std::string room = folder.path().filename();
    ASSERT_GE(floor_of(room), 0) << "host/" << room << " is in no list: give it a place in this test and in "
                                 << "docs/architecture.md";
    for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
      ++files;
      for (const std::string& other : included_rooms(file.path()))
        EXPECT_LE(floor_of(other), floor_of(room)) << file.path() << " includes " << other << "/, which is above it";
    }
  }
  EXPECT_GT(files, 200);
}

TEST(Rooms, TheDocumentationHasThemInThisOrder) {
  std::ifstream in(fs::path(lh::test::source_dir()) / "docs" / "architecture.md");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  size_t at = text.find("From the bottom up");
  ASSERT_NE(at, std::string::npos);
  for (const std::string& room : rooms) {
    const size_t found = text.find("[" + room + "](../host/" + room + ")", at);
    ASSERT_NE(found, std::string::npos) << room << " is missing, or stands before one that it is above";
    at = found;
  }
}

}  // namespace

}  // namespace lh::test::rooms_test
