// A published file is the old one or the new one, whole, whatever fails and wherever the process dies.
#include "io/file.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

#include "support/io_files.h"

namespace lh::file_test {
namespace {

using test::error_of;
using test::get;
using test::put;
using test::TempDir;

class File : public ::testing::Test {
 protected:
  ~File() override { set_fault_hook({}); }
  size_t entries() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(dir.path()), std::filesystem::directory_iterator()));
  }
  void publish() const {
    publish_file(
        target, 300000,
        [this](OutputFile& out) {
          for (int i = 0; i < 3; ++i) out.write(std::string(100000, static_cast<char>('a' + i)));
        },
        [this](const std::filesystem::path& temp) {
          if (get(temp) != fresh) fail(Code::resource, "verification");
        });
  }
  // Calls of one undisturbed publication, in order.
  std::vector<std::string> calls() {
    std::vector<std::string> names;
    set_fault_hook([&](const char* call) {
      names.emplace_back(call);
      return 0;
    });
    publish();
    set_fault_hook({});
    put(target, old);
    return names;
  }

  TempDir dir;
  std::filesystem::path target = dir / "file.bin";
  std::string old = "what was there before";
  std::string fresh = std::string(100000, 'a') + std::string(100000, 'b') + std::string(100000, 'c');
};

TEST_F(File, ANewOneReplacesNothing) {
  const auto publish_new = [&](const std::string& text) {
    return publish_new_file(target, static_cast<int64_t>(text.size()), [&](OutputFile& out) { out.write(text); });
  };
  EXPECT_TRUE(publish_new("first"));
  EXPECT_FALSE(publish_new("second"));
  EXPECT_EQ(get(target), "first");
  EXPECT_EQ(entries(), 1u);
  // Where the file system cannot promise it, and where a link that leads nowhere has the name.
  const auto cannot_promise = [renames = 0](const char* call) mutable {
    return std::string(call) == "rename" && renames++ == 0 ? EINVAL : 0;
  };
  set_fault_hook(cannot_promise);
  EXPECT_FALSE(publish_new("third"));
  std::filesystem::remove(target);
  set_fault_hook(cannot_promise);
  EXPECT_TRUE(publish_new("fourth"));
  set_fault_hook({});
  EXPECT_EQ(get(target), "fourth");
  std::filesystem::remove(target);
  std::filesystem::create_symlink("nowhere", target);
  EXPECT_FALSE(publish_new("fifth"));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(File, PublishesAndReplaces) {
  publish();
  EXPECT_EQ(get(target), fresh);
  publish_text(target, "short");
  EXPECT_EQ(get(target), "short");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(File, GivesUnusedReservationBack) {
  publish_file(target, 1 << 20, [](OutputFile& out) { out.write(std::string_view("tiny")); });
  struct stat info {};
  ASSERT_EQ(::stat(target.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 4);
  EXPECT_LT(info.st_blocks * 512, 1 << 19);
}

TEST_F(File, EveryFaultLeavesOldOrNew) {
  const auto names = calls();
  EXPECT_EQ(names,
            (std::vector<std::string>{"open", "fallocate", "write", "write", "write", "fsync", "rename", "fsync_dir"}));
  for (const bool persistent : {false, true})
    for (const int error : {ENOSPC, EIO, EDQUOT, EACCES, EFBIG})
      for (size_t k = 0; k < names.size(); ++k) {
        put(target, old);
        size_t call = 0;
        set_fault_hook([&](const char*) { return call++ == k || (persistent && call > k) ? error : 0; });
        const std::string text = error_of([&] { publish(); });
        set_fault_hook({});
        SCOPED_TRACE(names[k] + ": " + text);
        EXPECT_NE(text.find(target.string()), std::string::npos);
        EXPECT_EQ(get(target), names[k] == "fsync_dir" ? fresh : old);
        EXPECT_EQ(entries(), 1u);
      }
}

TEST_F(File, FailedSyncIsNeverRepeated) {
  int syncs = 0;
  set_fault_hook([&](const char* call) { return std::string_view(call) == "fsync" ? (++syncs, EIO) : 0; });
  EXPECT_NE(error_of([&] { publish(); }), "");
  EXPECT_EQ(syncs, 1);
}

TEST_F(File, InterruptedCallsGoOn) {
  int n = 0;
  set_fault_hook([&](const char*) { return n++ % 2 == 0 ? EINTR : 0; });
  publish();
  EXPECT_EQ(get(target), fresh);
}

TEST_F(File, ReservationMayBeUnsupported) {
  set_fault_hook([](const char* call) { return std::string_view(call) == "fallocate" ? EOPNOTSUPP : 0; });
  publish();
  EXPECT_EQ(get(target), fresh);
}

TEST_F(File, FullDiskNamesNeededAndFreeBytes) {
  set_fault_hook([](const char* call) { return std::string_view(call) == "write" ? ENOSPC : 0; });
  const std::string text = error_of([&] { publish(); });
  EXPECT_NE(text.find("needs 300000 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes free"), std::string::npos) << text;
}

TEST_F(File, WhatCannotFitTakesNothing) {
  put(target, old);
  bool reserved = false;
  set_fault_hook([&](const char* call) {
    reserved = reserved || std::string_view(call) == "fallocate";
    return 0;
  });
  const int64_t needed = int64_t{1} << 60;
  const std::string text = error_of([&] { publish_file(target, needed, [](OutputFile&) {}); });
  set_fault_hook({});
  EXPECT_FALSE(reserved);
  EXPECT_NE(text.find("needs 1152921504606846976 bytes"), std::string::npos) << text;
  EXPECT_EQ(text.find("has 0 bytes free"), std::string::npos) << text;
  EXPECT_EQ(get(target), old);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(File, FailedVerificationKeepsTheOldFile) {
  put(target, old);
  EXPECT_NE(error_of([&] {
              publish_file(
                  target, 3, [](OutputFile& out) { out.write(std::string_view("new")); },
                  [](const auto&) { fail(Code::resource, "differs"); });
            }),
            "");
  EXPECT_EQ(get(target), old);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(File, KilledAtEveryCallLeavesOldOrNew) {
  const auto names = calls();
  for (size_t k = 0; k < names.size(); ++k) {
    put(target, old);
    const pid_t child = ::fork();
    if (child == 0) {
      size_t call = 0;
      set_fault_hook([&](const char*) {
        if (call++ == k) ::raise(SIGKILL);
        return 0;
      });
      publish();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << names[k];
    EXPECT_EQ(get(target), names[k] == "fsync_dir" ? fresh : old) << names[k];
  }
}

TEST_F(File, SaysWhyAPlaceIsUnfit) {
  EXPECT_NE(error_of([&] { publish_text(dir / "missing/file", "x"); }).find("create it"), std::string::npos);
  std::filesystem::create_directories(dir / "folder/inside");
  EXPECT_NE(error_of([&] { publish_text(dir / "folder", "x"); }).find("folder stands"), std::string::npos);
  EXPECT_NE(error_of([&] { publish_text(dir / std::string(300, 'n'), "x"); }).find("shorter name"), std::string::npos);
}

TEST_F(File, ReplacesASymlinkInsteadOfFollowingIt) {
  put(dir / "victim", "keep");
  std::filesystem::create_symlink(dir / "victim", target);
  publish();
  EXPECT_EQ(get(dir / "victim"), "keep");
  EXPECT_EQ(get(target), fresh);
}

TEST_F(File, ReadsOnlyRegularFilesWithinTheirSize) {
  put(target, "0123456789");
  const InputFile file(target);
  std::byte four[4];
  file.read(6, four);
  EXPECT_EQ(std::memcmp(four, "6789", 4), 0);
  for (const int64_t offset : {int64_t{7}, int64_t{-1}, int64_t{11}, INT64_MAX})
    EXPECT_NE(error_of([&] { file.read(offset, four); }).find("the file has 10 bytes"), std::string::npos) << offset;
  EXPECT_NE(error_of([&] { InputFile(dir.path()); }).find("a folder"), std::string::npos);
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { InputFile(dir / "pipe"); }).find("a pipe"), std::string::npos);
  EXPECT_NE(error_of([&] { InputFile("/dev/zero"); }).find("a device"), std::string::npos);
  EXPECT_NE(error_of([&] { InputFile(dir / "none"); }).find("cannot be opened"), std::string::npos);
  EXPECT_EQ(read_text(target, 10), "0123456789");
  EXPECT_NE(error_of([&] { read_text(target, 9); }).find("at most 9"), std::string::npos);
}

TEST_F(File, NoticesAFileThatShrinks) {
  put(target, "0123456789");
  const InputFile file(target);
  std::filesystem::resize_file(target, 5);
  std::byte ten[10];
  EXPECT_NE(error_of([&] { file.read(0, ten); }).find("another program"), std::string::npos);
}

}  // namespace
}  // namespace lh::file_test
