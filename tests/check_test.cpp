// lora-host check: what is found in a folder of pictures, whatever its files do to their decoders, and how it is told.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/check_report.h"
#include "cli/html.h"
#include "data/check_dataset.h"
#include "data/codecs.h"
#include "data/thumbnail.h"
#include "support/image_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::check_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const fs::path root = source_dir();
const fs::path photos = root / "examples" / "demo" / "photos";

// ---- likeness -------------------------------------------------------------------------------------------------

Image brighter(Image image, int by) {
  for (uint8_t& value : image.rgb) value = static_cast<uint8_t>(std::clamp(value + by, 0, 255));
  return image;
}

Image again_as_jpeg(const Image& image) {
  const FileBytes bytes = encode_jpeg(image.width, image.height, image.rgb);
  return decode_image(bytes, "again.jpg");
}

Image mirrored(const Image& image) {
  Image out = image;
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x)
      std::copy_n(image.rgb.data() + 3 * (y * image.width + x), 3,
                  out.rgb.data() + 3 * (y * image.width + image.width - 1 - x));
  return out;
}

TEST(Likeness, OfWhatWasDoneToAPicture) {
  const Image cat = decode_image(photos / "cat_01.jpg");
  const auto cut = [&](double share) {  // of each side
    const auto part = [&](int64_t length) { return static_cast<int64_t>(static_cast<double>(length) * share); };
    Image small{.width = part(cat.width), .height = part(cat.height), .rgb = {}};
    for (int64_t y = 0; y < small.height; ++y)
      small.rgb.insert(small.rgb.end(), cat.rgb.begin() + 3 * y * cat.width,
                       cat.rgb.begin() + 3 * (y * cat.width + small.width));
    return small;
  };
  struct Row {
    const char* what;
    Image image;
    bool alike;
  };
  for (const Row& row : {Row{"itself", cat, true},
                         {"half the size", resize_and_crop(cat, cat.width / 2, cat.height / 2), true},
                         {"twice the size", resize_and_crop(cat, cat.width * 2, cat.height * 2), true},
                         {"another aspect", again_as_jpeg(resize_and_crop(cat, 100, 96)), true},
                         {"encoded anew", again_as_jpeg(cat), true},
                         {"brighter", brighter(cat, 20), true},
                         {"mirrored", mirrored(cat), false},
                         {"squeezed", resize_and_crop(cat, 100, 80), false},
                         {"its quarter", cut(0.5), false},
                         {"another", test_picture(cat.width, cat.height), false}})
    EXPECT_EQ(look_alike(likeness_of(cat), likeness_of(row.image)), row.alike) << row.what;
}

// Crops of one photograph that are far from each other are pictures of their own, and so are plain ones.
TEST(Likeness, OfDifferentPictures) {
  std::vector<Likeness> all;
  for (int i = 1; i <= 5; ++i) all.push_back(likeness_of(decode_image(photos / fmt::format("cat_0{}.jpg", i))));
  const auto plain = [](int64_t width, int64_t height, const auto& shade) {
    Image image{.width = width, .height = height, .rgb = {}};
    for (int64_t i = 0; i < width * height * 3; ++i) image.rgb.push_back(shade(i / 3 % width, i / 3 / width));
    return image;
  };
  all.push_back(likeness_of(plain(64, 64, [](int64_t x, int64_t) { return static_cast<uint8_t>(4 * x); })));
  all.push_back(likeness_of(plain(64, 64, [](int64_t, int64_t y) { return static_cast<uint8_t>(4 * y); })));
  all.push_back(likeness_of(
      plain(64, 64, [](int64_t x, int64_t y) { return static_cast<uint8_t>((x - 20) * (y - 20) > 150 ? 0 : 255); })));
  all.push_back(likeness_of(
      plain(64, 64, [](int64_t x, int64_t y) { return static_cast<uint8_t>((x - 44) * (y - 20) > 150 ? 0 : 255); })));
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < all.size(); ++j) EXPECT_EQ(look_alike(all[i], all[j]), i == j) << i << " and " << j;
  EXPECT_TRUE(look_alike(likeness_of(plain(1, 1, [](int64_t, int64_t) { return uint8_t{9}; })),
                         likeness_of(plain(3, 3, [](int64_t, int64_t) { return uint8_t{9}; }))));
}

TEST(Thumbnail, IsTheWholePicture) {
  for (const auto& [width, height, expected_width, expected_height] :
       {std::tuple{300, 200, 60, 40}, {20, 30, 20, 30}, {200, 1, 60, 1}}) {
    const std::string jpeg = jpeg_thumbnail(test_picture(width, height), 60);
    const ImageSize size = image_size(std::as_bytes(std::span(jpeg)), "thumbnail.jpg");
    EXPECT_EQ(size.width, expected_width);
    EXPECT_EQ(size.height, expected_height);
  }
}

// ---- findings -------------------------------------------------------------------------------------------------

FileBytes picture(int64_t width, int64_t height, int shade = 0) {
  return encode_png(brighter(test_picture(width, height), shade));
}

struct Folder {
  TempFolder dir{"check"};
  Folder& add(const std::string& name, const FileBytes& bytes, const std::optional<std::string>& caption = "a thing") {
    write_file(dir / name, bytes);
    if (caption) write_text((dir / name).replace_extension(".txt"), *caption);
    return *this;
  }
  CheckRequest request(int64_t resolution = 64) const {
    CheckRequest made;
    made.datasets.push_back({.folder_path = dir.path(), .resolution = {resolution}});
    made.examination.children = 2;
    return made;
  }
};

// "kind: text" of each note.
std::vector<std::string> notes_of(const DatasetCheck& check, const std::string& name) {
  std::vector<std::string> notes;
  for (size_t i = 0; i < check.pictures.size(); ++i)
    if (check.name(i) == name)
      for (const CheckedPicture::Note& note : check.pictures[i].notes)
        notes.push_back(fmt::format("{}: {}{}", name_of(note.finding), note.text, note.stops ? " [stops]" : ""));
  return notes;
}

TEST(CheckDataset, Findings) {
  Folder folder;
  // One shape and one look each, so that only what is meant is found.
  folder.add("good.png", picture(96, 80))
      .add("bare.png", encode_png(mirrored(test_picture(96, 80))), std::nullopt)
      .add("blank.png", encode_png(mirrored(test_picture(80, 96))), " \n")
      .add("wide.png", picture(300, 100))
      .add("small.png", picture(40, 60))
      .add("broken.png", FileBytes(20, std::byte{1}));
  CheckRequest request = folder.request();
  request.datasets[0].missing_captions = "empty";
  const DatasetCheck check = check_dataset(request);
  EXPECT_THAT(check.problems, ElementsAre());
  EXPECT_THAT(check.not_read, testing::IsEmpty());
  EXPECT_EQ(check.pictures.size(), 6u);
  EXPECT_EQ(check.trained_on(), 5);
  EXPECT_EQ(check.batches, 5);
  EXPECT_EQ(check.buckets, (std::map<Bucket, int64_t>{{{32, 48}, 1}, {{48, 64}, 1}, {{64, 48}, 2}, {{96, 32}, 1}}))
      << check_text(check);
  EXPECT_THAT(notes_of(check, "good.png"), ElementsAre());
  EXPECT_THAT(notes_of(check, "bare.png"), ElementsAre("no caption: has no caption, and is trained without"));
  EXPECT_THAT(notes_of(check, "blank.png"), ElementsAre("empty caption: its caption is empty"));
  EXPECT_THAT(notes_of(check, "small.png"), ElementsAre("small: 40 x 60 pixels, less than resolution 64 asks for"));
  EXPECT_THAT(notes_of(check, "broken.png"), ElementsAre(AllOf(HasSubstr("unusable: image"), HasSubstr("broken.png"))));
  EXPECT_THAT(notes_of(check, "wide.png"), testing::Contains("odd shape: 300 x 100 pixels"));
}

// It is no empty one.
TEST(CheckDataset, ACaptionThatCannotBeRead) {
  Folder folder;
  folder.add("a.png", picture(96, 80), "caf\xe9").add("b.png", encode_png(mirrored(test_picture(96, 80))));
  const DatasetCheck check = check_dataset(folder.request());
  EXPECT_THAT(check.problems, ElementsAre(HasSubstr("a.txt: byte 3")));
  EXPECT_THAT(notes_of(check, "a.png"),
              ElementsAre(AllOf(HasSubstr("no caption: caption "), HasSubstr("a.txt: byte 3"), HasSubstr("[stops]"))));
}

TEST(CheckDataset, PicturesThatAreThereTwice) {
  Folder folder;
  folder.add("a.png", picture(96, 96))
      .add("b.png", picture(96, 96))
      .add("c.png", encode_png(resize_and_crop(test_picture(96, 96), 72, 72)))
      .add("d.png", encode_png(mirrored(test_picture(96, 96))));
  CheckRequest request = folder.request();
  // The same folder at another resolution has no further pictures.
  request.datasets.push_back(request.datasets[0]);
  request.datasets[1].resolution = {32};
  const DatasetCheck check = check_dataset(request);
  EXPECT_EQ(check.pictures.size(), 4u);
  EXPECT_THAT(check.same, ElementsAre(ElementsAre(0u, 1u)));
  EXPECT_THAT(check.alike, ElementsAre(ElementsAre(0u, 2u)));
  const std::string at = folder.dir.path().filename().string() + "/";
  EXPECT_THAT(notes_of(check, at + "b.png"), ElementsAre("same: has the bytes of " + at + "a.png"));
  EXPECT_THAT(notes_of(check, at + "c.png"), testing::Contains("alike: looks like " + at + "a.png"));
  EXPECT_THAT(notes_of(check, at + "d.png"), ElementsAre());
  EXPECT_EQ(check.pictures[0].buckets.size(), 2u);
}

TEST(CheckDataset, WhatStopsTheTraining) {
  struct Row {
    const char* what;
    void (*change)(CheckRequest&);
    const char* problem;
  };
  for (const Row& row :
       {Row{"missing captions", [](CheckRequest&) {}, "1 of 3 images have no caption: bare.png"},
        {"corrupt and strict", [](CheckRequest& r) { r.datasets[0].strict = true; }, "[strict]"},
        {"no folder", [](CheckRequest& r) { r.datasets[0].folder_path = "/nowhere"; }, "there is no such folder"},
        {"no masks", [](CheckRequest& r) { r.datasets[0].mask_path = "/nowhere"; }, "mask_path /nowhere"},
        {"no further image", [](CheckRequest& r) { r.image_keys.needed = {"control"}; }, "images.control: missing"}}) {
    Folder folder;
    folder.add("good.png", picture(96, 80))
        .add("bare.png", encode_png(mirrored(test_picture(96, 80))), std::nullopt)
        .add("broken.png", FileBytes(20, std::byte{1}));
    CheckRequest request = folder.request();
    row.change(request);
    const DatasetCheck check = check_dataset(request);
    EXPECT_THAT(check.problems, testing::Contains(HasSubstr(row.problem))) << row.what;
    EXPECT_THAT(check_text(check), HasSubstr("what stops the training:\n")) << row.what;
  }
}

// A decoder is foreign code that is given foreign files.
TEST(CheckDataset, ADecoderThatCrashesOrHangsIsNamed) {
  Folder folder;
  folder.add("a.png", picture(96, 80))
      .add("crash.png", picture(64, 64))
      .add("hang.png", picture(80, 96))
      .add("z.png", picture(70, 90));
  CheckRequest request = folder.request();
  request.examination.seconds = 2;
  request.examination.decode = [](Bytes file, const fs::path& name) {
    if (name.stem() == "crash") ::raise(SIGSEGV);
    if (name.stem() == "hang") ::pause();
    return decode_image(file, name);
  };
  const DatasetCheck check = check_dataset(request);
  EXPECT_EQ(check.trained_on(), 2);
  EXPECT_THAT(
      check.problems,
      ElementsAre(AllOf(HasSubstr("crash.png: its decoder failed: crashed with signal 11"), HasSubstr("remove")),
                  HasSubstr("hang.png: its decoder failed: did not come to an end within 2 seconds")));
  for (const char* name : {"crash.png", "hang.png"})
    EXPECT_THAT(notes_of(check, name), ElementsAre(AllOf(HasSubstr("unusable: "), HasSubstr("[stops]"))));
}

// ---- what is told ---------------------------------------------------------------------------------------------

TEST(Html, NothingIsMarkup) {
  for (const auto& [text, expected] : {std::pair<std::string, std::string>{"a & b", "a &amp; b"},
                                       {"<script>", "&lt;script&gt;"},
                                       {"\" onload='x'", "&quot; onload=&#39;x&#39;"},
                                       {"\x1b[31m", "\xef\xbf\xbd[31m"},
                                       {"caf\xc3\xa9", "caf\xc3\xa9"},
                                       {"bad\xff\xfe.png", "bad\xef\xbf\xbd\xef\xbf\xbd.png"},
                                       {"cut\xc3", "cut\xef\xbf\xbd"},
                                       {"", ""}})
    EXPECT_EQ(html_text(text), expected) << text;
  EXPECT_EQ(data_url("image/jpeg", ""), "data:image/jpeg;base64,");
  EXPECT_EQ(data_url("text/plain", "Man"), "data:text/plain;base64,TWFu");
  EXPECT_EQ(data_url("text/plain", "Ma"), "data:text/plain;base64,TWE=");
}

TEST(Check, NamesAndCaptionsAreTextOnThePage) {
  Folder folder;
  folder.add("<script>alert(1)<\x1b>.png", picture(96, 80), "\"><img src=x onerror=alert(2)>")
      .add("' onclick='x.png", picture(96, 80))
      .add("raw\xff.png", FileBytes(20, std::byte{1}));
  const DatasetCheck check = check_dataset(folder.request());
  const std::string page = check_page(check, "<b>");
  for (const char* markup : {"<script", "<img", "onclick='", "<b>&lt;b", "\x1b", "\xff"})
    EXPECT_THAT(page, Not(HasSubstr(markup))) << markup;
  for (const char* text : {"default-src 'none'", "&lt;script&gt;alert(1)", "&quot;&gt;&lt;img src=x",
                           "data:image/jpeg;base64,/9j/", "Files with the same bytes", "96 x 80 &rarr; 64 x 48"})
    EXPECT_THAT(page, HasSubstr(text)) << text;
  EXPECT_THAT(check_text(check), Not(HasSubstr("\x1b")));
  const std::string json = check_json(check).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  EXPECT_EQ(nlohmann::json::parse(json).at("pictures").size(), 3u);
}

nlohmann::json json_in(const std::string& output) { return nlohmann::json::parse(output.substr(output.find('{'))); }

TEST(Check, TheCommand) {
  const TempDir dir;
  const std::string page = (dir / "page.html").string();
  const HostResult good = run_host({"check", photos.string(), "--resolution", "128,64", "--out", page});
  EXPECT_EQ(good.code, 0) << good.output;
  EXPECT_THAT(good.output, AllOf(HasSubstr("5 pictures in 1 dataset(s): 5 are trained on"),
                                 HasSubstr("no model is named"), HasSubstr("page: " + page)));
  EXPECT_THAT(get(page), HasSubstr("cat_05.jpg"));

  const fs::path bad = dir / "bad";
  fs::create_directory(bad);
  fs::copy_file(photos / "cat_01.jpg", bad / "cat_01.jpg");
  const HostResult stops = run_host({"check", bad.string(), "--json"});
  EXPECT_EQ(stops.code, 3) << stops.output;
  const nlohmann::json json = json_in(stops.output);
  EXPECT_EQ(json.at("stops"), true);
  EXPECT_THAT(json.at("problems").at(0).get<std::string>(), HasSubstr("1 of 1 images have no caption: cat_01.jpg"));
  EXPECT_EQ(json.at("pictures").at(0).at("findings").at(0).at("kind"), "no caption");

  EXPECT_THAT(run_host({"check", (dir / "nowhere").string()}).output, HasSubstr("there is no "));
  EXPECT_EQ(run_host({"check"}).code, 2);
  const std::string help = run_host({"check", "--help"}).output;
  EXPECT_THAT(help, HasSubstr("--batch-size"));
  for (const char* of_steps : {"--recompute", "--offload", "--optimizer-states"}) {
    EXPECT_THAT(help, Not(HasSubstr(of_steps)));
    EXPECT_EQ(run_host({"check", photos.string(), of_steps, "auto"}).code, 2) << "it would do nothing";
  }
}

// With a model its tokenizers count, and the step of its buckets is its own; where it cannot be opened the data is
// looked at all the same.
TEST(Check, AConfigurationWithAModel) {
  const ToyRun run;
  const fs::path data = run.folder() / "data";
  fs::create_directory(data);
  for (const char* name : {"cat_01", "cat_02"})
    fs::copy_file(photos / (name + std::string(".jpg")), data / (name + std::string(".jpg")));
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "cat ";
  put(data / "cat_01.txt", "a cat");
  put(data / "cat_02.txt", words);
  const std::vector<std::string> command = run.command();
  const auto config = std::ranges::find(command, "--config");
  ASSERT_NE(config, command.end());
  const HostResult result = run_host({"check", *(config + 1), "--dataset", data.string(), "--json"});
  EXPECT_EQ(result.code, 0) << result.output;
  const nlohmann::json json = json_in(result.output);
  EXPECT_EQ(json.at("remarks").size(), 0u) << json.at("remarks");
  EXPECT_EQ(json.at("findings").at("long caption"), 1);
  EXPECT_GT(json.at("pictures").at(0).at("tokens").size(), 0u);
  EXPECT_THAT(json.at("pictures").at(1).at("findings").at(0).at("text").get<std::string>(),
              HasSubstr("tokens are cut off"));

  const HostResult without =
      run_host({"check", *(config + 1), "--dataset", data.string(), "--clip", "/nowhere.safetensors", "--json"});
  EXPECT_EQ(without.code, 3) << without.output;
  EXPECT_THAT(json_in(without.output).at("problems").at(0).get<std::string>(), HasSubstr("/nowhere.safetensors"));
  EXPECT_EQ(json_in(without.output).at("pictures").size(), 2u);
}

}  // namespace
}  // namespace lh::test::check_test
