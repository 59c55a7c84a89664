// Files of `lora-host sample`: their names, and that none is lost.
#include "cli/picture_files.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "data/animation.h"
#include "support/image_files.h"
#include "support/io_files.h"

namespace lh::test::picture_files_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::vector<SampleRequest> requests(size_t count, int64_t frames = 1) {
  return std::vector<SampleRequest>(count, {.frames = frames});
}

struct PictureFilesTest : testing::Test {
  // A picture that is told by its width.
  static Sampled picture(int64_t width) { return {.frames = {test_picture(width, 8)}}; }
  fs::path folder(const std::string& name) const { return dir.path() / name; }
  std::string refusal(const fs::path& out, const std::vector<SampleRequest>& wanted) const {
    return error_of([&] { PictureFiles(out, wanted, false); });
  }
  TempDir dir;
};

TEST_F(PictureFilesTest, InAFolderNumbersGoOn) {
  const fs::path out = folder("a/b");
  PictureFiles first(out, requests(2), false);
  EXPECT_EQ(first.write(0, picture(8)), out / "sample_0.png");
  EXPECT_EQ(first.write(1, picture(9)), out / "sample_1.png");
  for (const char* other : {"sample_40.webp", "sample_77.txt", "sample_x9.png", "sample_-90.png", "sample_99.5.png",
                            "mysample_99.png", "sample_99999999999999999999.png"})
    put(out / other, "");
  PictureFiles next(out, requests(2), false);
  EXPECT_EQ(next.write(1, picture(10)), out / "sample_42.png");  // of several experts each makes them in its order
  EXPECT_EQ(next.write(0, picture(11)), out / "sample_41.png");
  EXPECT_EQ(image_size(out / "sample_0.png").width, 8);
}

// Two that began together.
TEST_F(PictureFilesTest, ANumberIsNotTakenTwice) {
  PictureFiles one(folder("a"), requests(2), false), other(folder("a"), requests(2), false);
  EXPECT_EQ(one.write(0, picture(8)), folder("a/sample_0.png"));
  EXPECT_EQ(other.write(0, picture(9)), folder("a/sample_1.png"));
  EXPECT_EQ(one.write(1, picture(10)), folder("a/sample_2.png"));
  EXPECT_EQ(other.write(1, picture(11)), folder("a/sample_3.png"));
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(image_size(folder(fmt::format("a/sample_{}.png", i))).width, 8 + i);
}

TEST_F(PictureFilesTest, ANameThatIsTakenIsRefused) {
  const fs::path out = folder("dog.PNG");
  EXPECT_EQ(PictureFiles(out, requests(1), false).write(0, picture(8)), out);
  EXPECT_THAT(refusal(out, requests(1)), AllOf(HasSubstr("dog.PNG: is there already"), HasSubstr("--force")));
  EXPECT_EQ(PictureFiles(out, requests(1), true).write(0, picture(9)), out);
  EXPECT_EQ(image_size(out).width, 9);
  // Of several the names that they will have.
  PictureFiles several(out, requests(3), false);
  EXPECT_EQ(several.write(1, picture(8)), folder("dog_1.png"));
  EXPECT_EQ(several.write(2, picture(8)), folder("dog_2.png"));
  EXPECT_EQ(several.write(0, picture(8)), folder("dog_0.png"));
  EXPECT_THAT(refusal(out, requests(2)), HasSubstr("dog_0.png, " + folder("dog_1.png").string() + ": are there"));
  // Made after it was looked for.
  PictureFiles late(folder("late.png"), requests(1), false);
  put(folder("late.png"), "of another program");
  EXPECT_THROW(late.write(0, picture(8)), Error);
  EXPECT_EQ(get(folder("late.png")), "of another program");
}

TEST_F(PictureFilesTest, ByForceTheyAreReplaced) {
  for (const int64_t width : {8, 9}) {
    PictureFiles files(folder("a"), requests(2), true);
    EXPECT_EQ(files.write(1, picture(width)), folder("a/sample_1.png"));
  }
  EXPECT_EQ(image_size(folder("a/sample_1.png")).width, 9);
}

TEST_F(PictureFilesTest, NamesOfOtherFormatsAreNoFolders) {
  EXPECT_THAT(refusal(folder("a.jpg"), requests(1)), HasSubstr("images are written as PNG. Give a name that ends in"));
  EXPECT_THAT(refusal(folder("a.mp4"), requests(1)), HasSubstr("images are written as PNG"));
  EXPECT_THAT(refusal(folder("a.png"), requests(1, 5)), HasSubstr("clips are written as animated WebP"));
  EXPECT_FALSE(fs::exists(folder("a.jpg")));
  put(folder("file"), "");
  EXPECT_THAT(refusal(folder("file/a.png"), requests(1)), HasSubstr("file"));
  EXPECT_THAT(refusal(folder("file"), requests(1)), HasSubstr(folder("file").string() + ": the folder cannot be made"));
  fs::create_directory(folder("folder.png"));
  EXPECT_EQ(PictureFiles(folder("folder.png"), requests(1), false).write(0, picture(8)),
            folder("folder.png/sample_0.png"));
}

TEST_F(PictureFilesTest, ClipsHaveTheirNumbersToo) {
  if (!writes_animations()) GTEST_SKIP() << "built without libwebp-dev";
  const Sampled clip{.frames = {test_picture(8, 8), test_picture(8, 8)}, .fps = 8};
  put(dir / "sample_3.png", "");
  EXPECT_EQ(PictureFiles(dir.path(), requests(1, 2), false).write(0, clip), dir / "sample_4.webp");
  EXPECT_EQ(PictureFiles(dir / "a.webp", requests(1, 2), false).write(0, clip), dir / "a.webp");
}

}  // namespace
}  // namespace lh::test::picture_files_test
