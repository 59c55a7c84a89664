// Buckets, captions and opening datasets with everything that can be wrong in a folder.
#include "data/dataset.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/hash.h"
#include "data/caption.h"
#include "data/read_cut.h"
#include "support/image_files.h"
#include "support/log.h"

namespace lh::dataset_test {
namespace {

using test::test_picture;
using test::write_file;
using test::write_text;

struct BucketCase {
  ImageSize size;
  int64_t resolution, step;
  Bucket expected;
};

TEST(Bucket, Table) {
  for (const BucketCase& t : {
           BucketCase{{2000, 2000}, 512, 16, {512, 512}},
           {{4000, 3000}, 512, 16, {576, 432}},  // 4:3 exactly, within the area
           {{3000, 4000}, 512, 16, {432, 576}},
           {{1920, 1080}, 1024, 16, {1360, 768}},
           {{300, 200}, 512, 16, {288, 192}},  // small: not enlarged
           {{512, 512}, 512, 16, {512, 512}},
           {{520, 520}, 1024, 32, {512, 512}},
           {{10, 10}, 512, 16, {16, 16}},  // smaller than a step
           {{10000, 10}, 512, 16, {10000, 16}},
           {{16384, 1}, 256, 16, {4096, 16}},  // the area rules
           {{100, 100}, 10, 16, {16, 16}},     // resolution below a step
           {{1000, 1000}, 500, 64, {448, 448}},
       }) {
    const Bucket found = choose_bucket(t.size, t.resolution, t.step, true);
    EXPECT_EQ(found, t.expected) << t.size.width << 'x' << t.size.height << " at " << t.resolution << ": "
                                 << found.width << 'x' << found.height;
  }
  EXPECT_EQ(choose_bucket({300, 200}, 512, 16, false), (Bucket{512, 512}));
  EXPECT_EQ(choose_bucket({3000, 200}, 500, 16, false), (Bucket{496, 496}));
  EXPECT_THROW(choose_bucket({0, 5}, 512, 16, true), Error);
}

TEST(Bucket, PromisesHoldForManySizes) {
  for (int64_t w = 1; w < 3000; w = w * 5 / 4 + 3)
    for (int64_t h = 1; h < 3000; h = h * 4 / 3 + 5)
      for (const int64_t step : {8, 16, 32, 64})
        for (const int64_t resolution : {64, 256, 512, 1000}) {
          const Bucket b = choose_bucket({w, h}, resolution, step, true);
          ASSERT_TRUE(b.width >= step && b.height >= step && b.width % step == 0 && b.height % step == 0);
          ASSERT_LE(b.width * b.height, resolution * resolution);
          ASSERT_LE(b.width, std::max(w, step));
          ASSERT_LE(b.height, std::max(h, step));
        }
}

TEST(Caption, TriggerTable) {
  EXPECT_EQ(with_trigger("a dog", ""), "a dog");
  EXPECT_EQ(with_trigger("a [trigger] dog", ""), "a [trigger] dog");
  EXPECT_EQ(with_trigger("a dog", "sks"), "sks, a dog");
  EXPECT_EQ(with_trigger("a sks dog", "sks"), "a sks dog");
  EXPECT_EQ(with_trigger("a [trigger] dog, [trigger]", "sks"), "a sks dog, sks");
  EXPECT_EQ(with_trigger("", "sks"), "sks");
  EXPECT_EQ(with_trigger("x [trigger]", "[trigger]y"), "x [trigger]y");  // not replaced twice
}

TEST(Caption, ReadingTable) {
  const test::TempFolder folder("lora_caption");
  const auto read = [&](const std::string& text) {
    write_text(folder / "a.txt", text);
    return read_caption(folder / "a.txt");
  };
  EXPECT_EQ(read("a dog\n"), "a dog");
  EXPECT_EQ(read("a dog\r\n\r\n"), "a dog");
  EXPECT_EQ(read("one\ntwo\n"), "one\ntwo");
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "caf\xc3\xa9"),
            "caf\xc3\xa9");
  EXPECT_EQ(read(""), "");
  EXPECT_EQ(read("\n"), "");
  EXPECT_EQ(read(std::string(max_caption_bytes, 'x')).size(), static_cast<size_t>(max_caption_bytes));
  EXPECT_THROW(read(std::string(max_caption_bytes + 1, 'x')), Error);
  for (const auto& [text, byte] : std::vector<std::pair<std::string, std::string>>{
           {"caf\xe9", "byte 3 (0xe9)"}, {"\xc0\x80", "byte 0"}, {"ab\xed\xa0\x80", "byte 2"}, {"\xf5", "byte 0"}}) {
    try {
      read(text);
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(byte), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("a.txt"), std::string::npos);
    }
  }
}

class DatasetTest : public testing::Test {
 protected:
  DatasetTest() : folder_("lora_dataset") { config_.folder_path = folder_.path(); }
  void add(const std::string& name, const std::string& caption = "a cat") {
    write_file(folder_ / name, encode_png(test_picture(64, 48)));
    write_text((folder_ / name).replace_extension(".txt"), caption);
  }
  std::string error(const KnownGood& known_good = {}) const {
    try {
      open_dataset({config_}, {trigger_}, 16, known_good);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::data);
      return e.what();
    }
  }
  void expect_error(const std::string& part) const {
    const std::string text = error();
    EXPECT_NE(text.find(part), std::string::npos) << "expected \"" << part << "\", found \"" << text << '"';
  }
  test::TempFolder folder_;
  DatasetConfig config_;
  std::string trigger_;
};

TEST_F(DatasetTest, SamplesInAFixedOrder) {
  add("b.png", "two\n");
  add("a.PNG", "one");
  add("B.png", "three");
  write_file(folder_ / "c.v2.JPEG", test::encode_jpeg(48, 64, test_picture(48, 64).rgb));
  write_text(folder_ / "c.v2.txt", "a [trigger]");
  write_text(folder_ / "notes.md", "not an image");
  std::filesystem::create_directories(folder_ / "sub");
  write_file(folder_ / "sub/d.png", encode_png(test_picture(8, 8)));
  config_.resolution = {32, 64};
  config_.flip_x = true;
  config_.num_repeats = 3;
  config_.caption_ext = ".txt";
  config_.caption_dropout_rate = 0.25;
  const Dataset dataset = open_dataset({config_}, {"sks"}, 16);
  ASSERT_EQ(dataset.samples.size(), 16u);
  std::string order;
  for (const Sample& s : dataset.samples) order += s.image.path.filename().string() + (s.flip.x ? "* " : " ");
  const std::string once = "B.png B.png* a.PNG a.PNG* b.png b.png* c.v2.JPEG c.v2.JPEG* ";
  EXPECT_EQ(order, once + once);
  EXPECT_EQ(dataset.samples[0].caption, "sks, three");
  EXPECT_EQ(dataset.samples[6].caption, "a sks");
  EXPECT_EQ(dataset.samples[0].repeats, 3);
  EXPECT_TRUE(dataset.samples[0].rule.drops());
  EXPECT_EQ(dataset.samples[8].bucket, (Bucket{64, 48}));
  EXPECT_EQ(dataset.samples[14].bucket, (Bucket{48, 64}));
  const auto png = encode_png(test_picture(64, 48));
  EXPECT_EQ(dataset.samples[0].image.content_hash, Sha256().update(std::span<const std::byte>(png)).hex());
}

TEST_F(DatasetTest, ImagesAreMirroredInTheWaysAskedFor) {
  add("a.png");
  const Flip plain, x{.x = true}, y{.y = true}, both{.x = true, .y = true};
  const std::pair<Flip, std::vector<Flip>> rows[] = {
      {plain, {plain}}, {x, {plain, x}}, {y, {plain, y}}, {both, {plain, x, y, both}}};
  for (const auto& [asked, expected] : rows) {
    config_.flip_x = asked.x;
    config_.flip_y = asked.y;
    std::vector<Flip> found;
    for (const Sample& s : open_dataset({config_}, {}, 16).samples) found.push_back(s.flip);
    EXPECT_EQ(found, expected) << asked.x << asked.y;
  }
}

TEST_F(DatasetTest, CorruptImagesAreSkippedOrRefused) {
  add("a.png");
  add("b.png");
  auto cut = encode_png(test_picture(64, 48));
  cut.resize(cut.size() - 20);
  write_file(folder_ / "b.png", cut);
  add("c.png");
  write_file(folder_ / "c.png", test::FileBytes{});
  const Dataset dataset = open_dataset({config_}, {}, 16);
  EXPECT_EQ(dataset.samples.size(), 1u);
  EXPECT_EQ(dataset.skipped, 2);
  EXPECT_EQ(test::take_warnings().size(), 2u);  // one names each image left out
  config_.strict = true;
  expect_error("b.png: damaged or cut-short PNG");
  expect_error("c.png: the file is empty");
  // What is known to be good is not decoded again; its header still is.
  std::filesystem::remove(folder_ / "c.png");
  EXPECT_EQ(error([](const std::string& hash) { return hash.size() == 64; }), "");
}

TEST_F(DatasetTest, NothingUsableIsAnError) {
  expect_error("found none (0 other entries");
  add("a.png");
  write_text(folder_ / "a.png", "this is text");
  expect_error("none of the 1 images can be used (1 corrupt, 0 unreadable)");
  EXPECT_EQ(test::take_warnings().size(), 1u);
  config_.folder_path = folder_ / "a.txt";
  expect_error("this is not a folder");
  config_.folder_path = folder_ / "absent";
  expect_error("there is no such folder");
  EXPECT_THROW(open_dataset({}, {}, 16), Error);
}

TEST_F(DatasetTest, MissingCaptionsAreListedOrDefaulted) {
  for (int i = 0; i < 7; ++i) write_file(folder_ / fmt::format("{}.png", i), encode_png(test_picture(16, 16)));
  add("z.png");
  expect_error("7 of 8 images have no caption: 0.png, 1.png, 2.png, 3.png, 4.png, ... (7 in all)");
  expect_error("set default_caption");
  config_.caption_ext = "caption";
  expect_error("8 of 8");
  expect_error("(z.txt is beside z.png: set caption_ext: txt, or add <name>.caption beside each");
  std::filesystem::remove(folder_ / "z.txt");
  write_text(folder_ / "metadata.jsonl", "{}");
  expect_error("(metadata.jsonl is there: set metadata_file: ");
  write_text(folder_ / "3.png.caption", "three");
  expect_error("(3.png.caption is beside 3.png: name it 3.caption, or ");
  config_.default_caption = "a [trigger]";
  EXPECT_EQ(open_dataset({config_}, {"sks"}, 16).samples[0].caption, "a sks");
  EXPECT_THAT(test::take_warnings(),
              testing::ElementsAre(testing::HasSubstr("8 of 8 images have no caption; theirs is \"a [trigger]\"; but "
                                                      "3.png.caption is beside 3.png: name it 3.caption")));
  for (const char* name : {"3.png.caption", "metadata.jsonl"}) std::filesystem::remove(folder_ / name);
  open_dataset({config_}, {"sks"}, 16);
  EXPECT_THAT(test::take_warnings(), testing::IsEmpty());
}

TEST_F(DatasetTest, ImagesInSubFoldersAreAnsweredWithTheKeyThatTakesThem) {
  std::filesystem::create_directory(folder_ / "cats");
  expect_error("sub-folders are searched with recursive: true");
  std::filesystem::create_directory(folder_ / "10_sks cat");
  expect_error("searched with recursive: true, those as 10_sks cat with class_folders: true");
}

TEST_F(DatasetTest, CaptionsOfFilesInCapitals) {
  write_file(folder_ / "A.PNG", encode_png(test_picture(16, 16)));
  write_text(folder_ / "A.TXT", "loud");
  write_file(folder_ / "b.png", encode_png(test_picture(16, 16)));
  write_text(folder_ / "b.TXT", "passed over");
  write_text(folder_ / "b.txt", "quiet");
  const Dataset dataset = open_dataset({config_}, {}, 16);
  ASSERT_EQ(dataset.samples.size(), 2u);
  EXPECT_EQ(dataset.samples[0].caption, "loud");
  EXPECT_EQ(dataset.samples[1].caption, "quiet");
}

TEST_F(DatasetTest, AllProblemsComeTogether) {
  add("a.png", "caf\xe9");
  add("b.png", std::string(max_caption_bytes + 1, 'x'));
  write_file(folder_ / "c.png", encode_png(test_picture(16, 16)));
  std::filesystem::create_directories(folder_ / "d.png");
  const std::string text = error();
  for (const char* part : {"a.txt: byte 3", "b.txt: 65537 bytes", "c.png", "d.png: expected a regular file"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

std::vector<std::string> names_of(const std::vector<Sample>& samples) {
  std::vector<std::string> names;
  for (const Sample& sample : samples) names.push_back(sample.image.path.filename().string());
  return names;
}

TEST_F(DatasetTest, FoldersWithinTheFolder) {
  for (const char* folder : {"10_sks dog", "2_cat", "notes", ".hidden"})
    std::filesystem::create_directories(folder_ / folder);
  add("10_sks dog/a.png");
  write_file(folder_ / "10_sks dog/b.png", encode_png(test_picture(32, 32)));
  add("2_cat/c.png");
  add("notes/d.png");
  add(".hidden/e.png");
  expect_error("sub-folders are searched with recursive: true");
  config_.recursive = true;
  config_.missing_captions = "empty";
  EXPECT_EQ(names_of(open_dataset({config_}, {}, 16).samples),
            (std::vector<std::string>{"a.png", "b.png", "c.png", "d.png"}));
  // Links that lead back are followed once; two of them would have had no end.
  for (const char* link : {"notes/back", "notes/again", "2_cat/notes"})
    std::filesystem::create_directory_symlink(folder_ / ".", folder_ / link);
  test::take_warnings();
  EXPECT_EQ(names_of(open_dataset({config_}, {}, 16).samples),
            (std::vector<std::string>{"a.png", "b.png", "c.png", "d.png"}));
  EXPECT_THAT(test::take_warnings(), testing::Contains(testing::HasSubstr("is a link to a folder that it lies in")));
  for (const char* link : {"notes/back", "notes/again", "2_cat/notes"}) std::filesystem::remove(folder_ / link);
  std::filesystem::create_symlink("nowhere.png", folder_ / "notes/e.png");
  expect_error("e.png: a link that leads to no file: mend or remove it");
  std::filesystem::remove(folder_ / "notes/e.png");
  config_.recursive = false;
  config_.class_folders = true;
  const Dataset dataset = open_dataset({config_}, {}, 16);
  ASSERT_EQ(names_of(dataset.samples), (std::vector<std::string>{"a.png", "b.png", "c.png"}));
  EXPECT_EQ(dataset.samples[0].repeats, 10);
  EXPECT_EQ(dataset.samples[0].caption, "a cat") << "its file counts";
  EXPECT_EQ(dataset.samples[1].caption, "sks dog") << "the folder's name";
  EXPECT_EQ(dataset.samples[2].repeats, 2);
  config_.folder_path = folder_ / "notes";
  expect_error("class_folders: expected sub-folders such as 10_sks dog, found none");
}

TEST_F(DatasetTest, ImagesOfOtherFormatsAreNamed) {
  add("a.png");
  for (const char* name : {"c.JXL", "b.jp2", "x.safetensors"}) write_text(folder_ / name, "?");
  EXPECT_EQ(open_dataset({config_}, {}, 16).not_read, (std::vector<std::string>{"b.jp2", "c.JXL"}));
}

// A scale of 0 covers the bucket, 1 is the image as it is; images that are no larger than the bucket stay.
TEST_F(DatasetTest, ImagesComeAtAnyScale) {
  for (const auto& [scale, width, height] : {std::tuple{0.0, 64, 48}, {0.5, 112, 84}, {1.0, 160, 120}}) {
    const CropGeometry crop = crop_geometry({160, 120}, {64, 48}, {.x = 1, .y = 0, .scale = scale});
    EXPECT_EQ(crop.scaled.width, width);
    EXPECT_EQ(crop.scaled.height, height);
    EXPECT_EQ(crop.left, width - 64);
    EXPECT_EQ(crop.top, 0);
  }
  EXPECT_EQ(crop_geometry({64, 48}, {64, 48}, {.scale = 1}).scaled.width, 64);
  add("a.png");
  config_.random_scale = true;
  config_.augment_variants = 4;
  const Dataset dataset = open_dataset({config_}, {}, 16);
  std::set<double> scales;
  for (const ImageCut& cut : dataset.samples.at(0).cuts()) {
    EXPECT_EQ(cut.augment.at.x, 0.5) << "the centre, unless random_crop is on";
    EXPECT_TRUE(cut.augment.at.scale >= 0 && cut.augment.at.scale < 1);
    scales.insert(cut.augment.at.scale);
  }
  EXPECT_EQ(scales.size(), 4u);
}

TEST_F(DatasetTest, MetadataSaysWhichImagesThereAre) {
  add("a.png");
  add("b.png", "not this");
  config_.metadata_file = folder_ / "meta.json";
  write_text(config_.metadata_file, R"({"b.png": {"caption": ["one", "two"]}})");
  const Dataset dataset = open_dataset({config_}, {}, 16);
  ASSERT_EQ(names_of(dataset.samples), std::vector<std::string>{"b.png"});
  EXPECT_EQ(dataset.samples[0].texts, (std::vector<std::string>{"one", "two"}));
}

// Samples of each kind in an epoch, and repeats of each regularization image.
struct RegRow {
  int64_t images, repeats, reg_images, reg_repeats, unused;
  std::vector<int64_t> reg;
};

TEST_F(DatasetTest, RegularizationImagesAreAsManyAsOthers) {
  for (const RegRow& row : {RegRow{3, 2, 2, 1, 0, {3, 3}},                                 // 6: once each, then in turn
                            RegRow{5, 1, 2, 1, 0, {3, 2}}, RegRow{2, 1, 3, 1, 1, {1, 1}},  // those that come first
                            RegRow{4, 1, 3, 3, 1, {3, 3}}}) {                              // repeats are not cut
    const test::TempFolder folder("lora_reg");
    std::vector<DatasetConfig> configs(2);
    for (size_t i = 0; i < 2; ++i) {
      configs[i].folder_path = folder / (i == 0 ? "train" : "reg");
      configs[i].default_caption = "a dog";
      configs[i].is_reg = i == 1;
      configs[i].num_repeats = i == 0 ? row.repeats : row.reg_repeats;
      std::filesystem::create_directories(configs[i].folder_path);
      for (int64_t j = 0; j < (i == 0 ? row.images : row.reg_images); ++j)
        write_file(configs[i].folder_path / fmt::format("{}.png", j), encode_png(test_picture(16, 16)));
    }
    const Dataset dataset = open_dataset(configs, {"sks"}, 16);
    std::vector<int64_t> reg;
    for (const Sample& sample : dataset.samples) {
      EXPECT_EQ(sample.caption, sample.is_reg ? "a dog" : "sks, a dog");
      if (sample.is_reg) reg.push_back(sample.repeats);
    }
    EXPECT_EQ(reg, row.reg);
    EXPECT_EQ(dataset.unused_reg, row.unused);
    try {
      open_dataset({configs[1]}, {"sks"}, 16);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("all of them have is_reg"), std::string::npos) << e.what();
    }
  }
}

TEST_F(DatasetTest, WholeImagesAreSetApart) {
  for (int i = 0; i < 10; ++i) {
    const std::string name = fmt::format("{}.png", i);
    write_file(folder_ / name, encode_png(test_picture(40 + i, 40)));
  }
  config_.default_caption = "a cat";
  config_.resolution = {32, 48};
  config_.flip_x = true;
  const auto split = [&](double share, uint64_t seed) {
    return open_dataset({config_}, {}, 16, {}, {}, {share, seed});
  };
  const Dataset dataset = split(0.25, 1);
  EXPECT_EQ(dataset.validation.size(), 2u * 4);
  EXPECT_EQ(dataset.samples.size(), 8u * 4);
  const std::vector<std::string> apart = names_of(dataset.validation), trained = names_of(dataset.samples);
  for (const std::string& name : apart) EXPECT_EQ(std::ranges::count(trained, name), 0) << name;
  EXPECT_EQ(names_of(split(0.25, 1).validation), apart);
  std::set<std::vector<std::string>> of_seeds;
  for (uint64_t seed = 0; seed < 5; ++seed) of_seeds.insert(names_of(split(0.25, seed).validation));
  EXPECT_GT(of_seeds.size(), 1u);
  // An image that goes takes no other with it.
  std::filesystem::remove(folder_ / trained[0]);
  EXPECT_EQ(names_of(split(0.25, 1).validation), apart);
  for (const double share : {0.01, 0.05}) EXPECT_THROW(split(share, 1), Error) << share;
}

// A picture that is white on its left half.
Image half_white(int64_t width, int64_t height) {
  Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  for (int64_t i = 0; i < width * height * 3; ++i)
    image.rgb[static_cast<size_t>(i)] = i / 3 % width < width / 2 ? 255 : 0;
  return image;
}

TEST_F(DatasetTest, MasksSayWhereImagesCount) {
  std::filesystem::create_directories(folder_ / "masks/sub");
  std::filesystem::create_directories(folder_ / "sub");
  add("a.png");
  add("b.png");
  add("sub/c.png");
  config_.recursive = true;
  config_.mask_path = folder_ / "masks";
  write_file(folder_ / "masks/a.PNG", encode_png(half_white(32, 24)));  // of another size, and the same shape
  write_file(folder_ / "masks/sub/c.png", encode_png(half_white(64, 48)));
  config_.folder_path = folder_ / ".";
  config_.recursive = false;
  Dataset dataset = open_dataset({config_}, {}, 16);
  ASSERT_EQ(dataset.samples.size(), 2u);
  ASSERT_TRUE(dataset.samples[0].mask);
  EXPECT_FALSE(dataset.samples[1].mask) << "it counts everywhere";
  EXPECT_EQ(dataset.samples[0].mask->file.path.filename(), "a.PNG");
  config_.mask_min_value = 0.25;
  for (const bool invert : {false, true}) {
    config_.invert_mask = invert;
    dataset = open_dataset({config_}, {}, 16);
    const std::vector<float> places = read_mask(*dataset.samples[0].mask, {64, 48});
    ASSERT_EQ(places.size(), 64u * 48);
    EXPECT_NEAR(places[8], invert ? 0.25 : 1, 0.01);
    EXPECT_NEAR(places[56], invert ? 1 : 0.25, 0.01);
  }
  write_file(folder_ / "masks/b.png", encode_png(half_white(48, 48)));
  open_dataset({config_}, {}, 16);
  EXPECT_THAT(test::take_warnings(),
              testing::ElementsAre(testing::HasSubstr("48 x 48 pixels, and its image b.png has 64 x 48")));
  config_.alpha_mask = true;
  expect_error("mask_path and alpha_mask both say where images count");
  config_.alpha_mask = false;
  config_.mask_path = folder_ / "absent";
  expect_error("mask_path");
}

TEST_F(DatasetTest, AlphaIsAMask) {
  std::vector<uint8_t> rows;
  for (int i = 0; i < 32 * 16; ++i)
    for (const int v : {10, 20, 30, i % 32 < 16 ? 255 : 0}) rows.push_back(static_cast<uint8_t>(v));
  write_file(folder_ / "a.png", test::encode_png_as(32, 16, 32 * 4, rows, {.color_type = 6, .bit_depth = 8}));
  write_text(folder_ / "a.txt", "a cat");
  config_.alpha_mask = true;
  const std::vector<float> places = read_mask(*open_dataset({config_}, {}, 16).samples[0].mask, {32, 16});
  EXPECT_EQ(places[4], 1.0f);
  EXPECT_EQ(places[28], 0.0f);
}

}  // namespace
}  // namespace lh::dataset_test
