// What was seen of files saves reading them, and is believed for as long as they are what they were.
#include "io/seen_files.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "data/batches.h"
#include "encode/tensor_cache.h"
#include "support/graph_run.h"
#include "support/image_files.h"
#include "support/io_files.h"
#include "support/log.h"

namespace lh::test::seen_files_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(SeenFiles, AreKnownUntilTheyAreTouched) {
  struct Case {
    const char* what;
    std::function<void(const fs::path&)> touch;
    bool known;
  };
  const Case cases[] = {
      {"nothing", [](const fs::path&) {}, true},
      {"another size", [](const fs::path& file) { put(file, "longer than it was"); }, false},
      {"the same size", [](const fs::path& file) { put(file, "bytez"); }, false},
      {"the same bytes", [](const fs::path& file) { put(file, "bytes"); }, false},
      {"another file",
       [](const fs::path& file) {
         put(file.string() + ".new", "bytes");
         fs::rename(file.string() + ".new", file);
       },
       false},
      // The time of the last write can be set; that of the last change cannot.
      {"its time of old",
       [](const fs::path& file) {
         const auto written = fs::last_write_time(file);
         put(file, "bytez");
         fs::last_write_time(file, written);
       },
       false},
      {"removed", [](const fs::path& file) { fs::remove(file); }, false},
      {"a folder",
       [](const fs::path& file) {
         fs::remove(file);
         fs::create_directory(file);
       },
       false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const TempDir dir;
    const fs::path file = dir / "a b\nc.png", list = dir / "list/seen";
    put(file, "bytes");
    {
      SeenFiles seen(list, "test/1");
      EXPECT_EQ(seen.find(file), std::nullopt);
      seen.note(file, *stamp_of(file), "what it is\n");
      seen.save();
    }
    // A clock of the file system goes on in steps; whoever touches a file within one of them is not seen.
    const FileStamp before = *stamp_of(file);
    for (int i = 0; i < 2000 && c.known == (stamp_of(file) != before); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      c.touch(file);
      if (c.known) break;
    }
    SeenFiles later(list, "test/1");
    EXPECT_EQ(later.find(file), c.known ? std::optional<std::string>("what it is\n") : std::nullopt);
    EXPECT_EQ(SeenFiles(list, "test/2").find(file), std::nullopt) << "another kind";
  }
}

TEST(SeenFiles, AListThatIsNotWholeIsNone) {
  const TempDir dir;
  const fs::path file = dir / "file", list = dir / "seen";
  put(file, "bytes");
  SeenFiles seen(list, "test/1");
  seen.note(file, *stamp_of(file), "what");
  seen.save();
  const std::string whole = get(list);
  for (size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x11);
    put(list, damaged);
    EXPECT_EQ(SeenFiles(list, "test/1").find(file), std::nullopt) << "byte " << at;
  }
  put(list, whole);
  EXPECT_NE(SeenFiles(list, "test/1").find(file), std::nullopt);
  EXPECT_THAT(take_warnings(), IsEmpty());
  SeenFiles nowhere(dir / "file/list", "test/1");
  nowhere.note(file, *stamp_of(file), "what");
  nowhere.save();
  EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr("is not kept for the next run")));
}

TEST(SeenFiles, ForgetsWhatIsNoMoreThere) {
  const TempDir dir;
  put(dir / "a", "a");
  put(dir / "b", "b");
  SeenFiles seen(dir / "seen", "test/1");
  for (const char* name : {"a", "b"}) seen.note(dir / name, *stamp_of(dir / name), name);
  seen.save();
  fs::remove(dir / "a");
  put(dir / "c", "c");
  SeenFiles later(dir / "seen", "test/1");
  later.note(dir / "c", *stamp_of(dir / "c"), "c");
  later.forget(dir / "b");
  later.save();
  const std::string text = get(dir / "seen");
  EXPECT_EQ(text.find((dir / "a").string()), text.npos);
  EXPECT_EQ(text.find((dir / "b").string()), text.npos);
  EXPECT_NE(text.find((dir / "c").string()), text.npos);
}

// Counts how often files whose path has `part` are opened to be read.
class Opened {
 public:
  explicit Opened(std::string part) : part_(std::move(part)) {
    set_read_fault_hook([this](const char* call, const fs::path& file) {
      count_ += std::string_view(call) == "open_read" && file.string().find(part_) != std::string::npos;
      return 0;
    });
  }
  ~Opened() { set_read_fault_hook({}); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  int count() const { return count_; }

 private:
  std::string part_;
  std::atomic<int> count_ = 0;
};

const TensorCache::Check anything = [](const NamedTensors&) { return std::string(); };

TEST(TensorCache, WhatWasSeenToBeWellIsNotReadAgain) {
  const TempDir dir;
  {
    TensorCache cache(dir / "cache", "test/1");
    for (const char* key : {"a", "b"}) cache.put(key, {{"text", ramp({1, 7, 3}, 1)}, {"pooled", ramp({2}, 1)}});
    cache.save_seen();
  }
  Opened opened("cache/");
  TensorCache cache(dir / "cache", "test/1");
  EXPECT_TRUE(cache.sound("a", anything));
  EXPECT_FALSE(cache.sound("c", anything));
  const auto shapes = cache.shapes("a");
  ASSERT_TRUE(shapes);
  EXPECT_EQ(shapes->at("text"), (Shape{1, 7, 3}));
  EXPECT_EQ(shapes->at("pooled"), (Shape{2}));
  EXPECT_EQ(cache.shapes("c"), std::nullopt);
  EXPECT_EQ(opened.count(), 1) << "c, to see that it is not there";
  cache.will_need("a");
  EXPECT_NE(cache.find("a", anything), nullptr);
  EXPECT_EQ(opened.count(), 2);
  // Another one under another name: read, refused, and not known from then on.
  fs::rename(dir / "cache/b.safetensors", dir / "cache/a.safetensors");
  TensorCache later(dir / "cache", "test/1");
  EXPECT_FALSE(later.sound("a", anything));
  EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr("expected test/1 a, found test/1 b")));
}

// An entry that is damaged while a run goes on is refused when it is used, and made again by the next run.
TEST(TensorCache, WhatIsUsedIsCheckedWhateverWasSeen) {
  const TempDir dir;
  const fs::path file = dir / "cache/a.safetensors";
  {
    TensorCache cache(dir / "cache", "test/1");
    cache.put("a", {{"x", ramp({100}, 1)}});
    cache.save_seen();
  }
  TensorCache cache(dir / "cache", "test/1");
  ASSERT_TRUE(cache.sound("a", anything));
  std::string bytes = get(file);
  for (const std::string& damaged : {bytes.substr(0, bytes.size() / 2), bytes.substr(0, bytes.size() - 1) + "x"}) {
    put(file, damaged);
    EXPECT_EQ(cache.find("a", anything), nullptr);
    EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr("made again")));
  }
  cache.save_seen();
  EXPECT_EQ(TensorCache(dir / "cache", "test/1").shapes("a"), std::nullopt);
}

TEST(Dataset, ImagesThatWereSeenAreNotReadAgain) {
  const TempDir dir;
  DatasetConfig config;
  config.folder_path = dir / "photos";
  config.default_caption = "a photo";
  fs::create_directory(config.folder_path);
  for (const char* name : {"a.png", "b.png"}) {
    const std::vector<std::byte> png = encode_png(test_picture(64, name[0] == 'a' ? 48 : 32));
    put(config.folder_path / name, std::string(reinterpret_cast<const char*>(png.data()), png.size()));
  }
  const auto open = [&] {
    SeenFiles seen(dir / "images.seen", "images/1");
    Dataset dataset = open_dataset({config}, {}, 16, {}, {}, {}, nullptr, &seen);
    seen.save();
    return dataset;
  };
  const Dataset first = open();
  {
    Opened opened("photos/");
    const Dataset again = open();
    EXPECT_EQ(opened.count(), 0);
    ASSERT_EQ(again.samples.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(again.samples[i].image.content_hash, first.samples[i].image.content_hash);
      EXPECT_EQ(again.samples[i].bucket, first.samples[i].bucket);
      EXPECT_EQ(again.samples[i].image.size.height, first.samples[i].image.size.height);
    }
  }
  fs::copy_file(config.folder_path / "a.png", config.folder_path / "b.png", fs::copy_options::overwrite_existing);
  const Dataset changed = open();
  EXPECT_EQ(changed.samples[1].image.content_hash, first.samples[0].image.content_hash);
}

TEST(BatchOrder, LooksAheadAcrossEpochs) {
  Dataset dataset;
  for (int i = 0; i < 10; ++i) {
    Sample& sample = dataset.samples.emplace_back();
    sample.bucket = {64, 64};
  }
  BatchOrder plain(dataset, 7), ahead(dataset, 7);
  for (int64_t i = 0; i < 35; ++i) {
    const std::vector<int64_t> later = ahead.at(i + 4).samples;
    EXPECT_EQ(ahead.at(i).samples, plain.at(i).samples);
    EXPECT_EQ(later, BatchOrder(dataset, 7).at(i + 4).samples);
  }
}

}  // namespace
}  // namespace lh::test::seen_files_test
