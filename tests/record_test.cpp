// A record is what was written under its kind and key, bit for bit, or it says what it is instead.
#include "io/record.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cerrno>

#include "core/hash.h"
#include "support/io_files.h"

namespace lh::test::record_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const RecordId id{"test/1", "seven"};

void write(const fs::path& path, const RecordId& as = id, float first = 1) {
  const HostTensor a = counting({3, 4}, first), none(Desc{DType::f32, {0}}), b = as_type(counting({5}, 9), DType::bf16);
  write_record(path, as,
               {{"a", a.desc, a.data.data()},
                {"none", none.desc, none.data.data()},
                {"empty", none.desc, none.data.data()},
                {"b", b.desc, b.data.data()}},
               {{"note", "of \"this\" record"}});
}

RecordAnswer answer(const fs::path& path, const RecordId& as = id) { return read_record(path, as).answer; }

TEST(Record, RoundTrip) {
  const TempDir dir;
  write(dir / "r.safetensors");
  const Record record = read_record(dir / "r.safetensors", id);
  ASSERT_EQ(record.answer, RecordAnswer::ok) << record.why;
  EXPECT_EQ(record.tensors.at("a").data, counting({3, 4}, 1).data);
  EXPECT_EQ(record.tensors.at("b").desc, (Desc{DType::bf16, {5}}));
  EXPECT_EQ(record.tensors.size(), 4u);
  EXPECT_EQ(record.metadata, (std::map<std::string, std::string>{{"note", "of \"this\" record"}}));
}

// Every byte flipped, and the file cut at many lengths.
TEST(Record, AnyChangeIsSeen) {
  const TempDir dir;
  const fs::path file = dir / "r.safetensors";
  write(file);
  const std::string whole = get(file);
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const size_t bit : {at % 7, size_t{5}}) {  // bit 5 of a space leaves NUL
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      put(file, bytes);
      const Record record = read_record(file, id);
      // A space between two JSON tokens may become another kind of space: the same header.
      if (record.answer == RecordAnswer::ok)
        EXPECT_TRUE(std::isspace(static_cast<unsigned char>(bytes[at])) != 0 && whole[at] == ' ') << "byte " << at;
      else
        EXPECT_THAT(record.why, HasSubstr(file.string()));
    }
    if (at % 5 != 0) continue;
    put(file, whole.substr(0, at));
    EXPECT_EQ(answer(file), RecordAnswer::damaged) << "cut at " << at;
  }
}

TEST(Record, KindAndKeyAreThoseAskedFor) {
  const TempDir dir;
  write(dir / "a");
  write(dir / "b", {"test/1", "eight"}, 5);
  EXPECT_EQ(answer(dir / "a"), RecordAnswer::ok);
  EXPECT_EQ(answer(dir / "a", {"test/1", "eight"}), RecordAnswer::foreign);
  EXPECT_EQ(answer(dir / "a", {"test/2", "seven"}), RecordAnswer::foreign);
  fs::rename(dir / "b", dir / "a");
  const Record exchanged = read_record(dir / "a", id);
  EXPECT_EQ(exchanged.answer, RecordAnswer::foreign);
  EXPECT_THAT(exchanged.why, HasSubstr("expected test/1 seven, found test/1 eight"));
  write_file(dir / "plain", {{"a", counting({2})}}, {{"digest", "0"}});
  EXPECT_EQ(answer(dir / "plain"), RecordAnswer::foreign);
}

// A type or shape of the same size, a name, and what the metadata says are part of what the digest is over.
TEST(Record, HeadersAreSealed) {
  const TempDir dir;
  const fs::path file = dir / "r";
  write(file);
  const std::string whole = get(file);
  for (const auto& [from, to] : {std::pair<std::string, std::string>{R"("BF16")", R"("F16" )"},
                                 {R"("F32","shape":[3,4])", R"("I32","shape":[3,4])"},
                                 {"[3,4]", "[4,3]"},
                                 {R"("none")", R"("nine")"},
                                 {"this", "that"},
                                 {"test/1", "test/3"}}) {
    std::string changed = whole;
    const size_t at = changed.find(from);
    ASSERT_NE(at, changed.npos) << from;
    changed.replace(at, from.size(), to);
    put(file, changed);
    EXPECT_EQ(answer(file), RecordAnswer::damaged) << from;
  }
}

// Records of builds that had one digest for all data.
TEST(Record, WithoutDigestsOfTensorsIsRead) {
  const TempDir dir;
  const fs::path file = dir / "r";
  write(file);
  const Safetensors made(file);
  std::map<std::string, std::string> metadata = made.metadata();
  EXPECT_EQ(metadata.at("lora_host.digests").size(), 64 * made.tensors().size());
  metadata.erase("lora_host.digests");
  metadata.erase("lora_host.digest");
  std::vector<std::pair<std::string, Desc>> entries;
  for (const StoredTensor& t : made.tensors()) entries.emplace_back(t.name, t.desc);
  const std::string data = get(file).substr(static_cast<size_t>(made.data_start()));
  metadata["lora_host.digest"] = sha256_hex(safetensors_header(entries, metadata) + data);
  const std::string old = safetensors_header(entries, metadata) + data;
  put(file, old);
  const Record record = check_record(file, id, [](const std::string&, const HostTensor&) {});
  ASSERT_EQ(record.answer, RecordAnswer::ok) << record.why;
  EXPECT_EQ(record.metadata, (std::map<std::string, std::string>{{"note", "of \"this\" record"}}));
  EXPECT_EQ(record.read("a").data, counting({3, 4}, 1).data);
  std::string changed = old;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  put(file, changed);
  EXPECT_EQ(answer(file), RecordAnswer::damaged);
}

// The file is read again, tensor by tensor, after it was checked as a whole.
TEST(Record, WhatIsReadIsWhatWasChecked) {
  const TempDir dir;
  const fs::path file = dir / "r";
  write(file);
  std::string bytes = get(file);
  const Record record = check_record(file, id, [](const std::string&, const HostTensor&) {});
  ASSERT_EQ(record.answer, RecordAnswer::ok) << record.why;
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // of "b"
  put(file, bytes);                                    // in the same file
  EXPECT_EQ(record.read("a").data, counting({3, 4}, 1).data);
  EXPECT_THAT(
      error_of([&] { record.read("b"); }),
      HasSubstr(file.string() + ": the content does not match its checksum: it was changed after it was checked"));
}

// A call that fails says nothing about the content.
TEST(Record, FailedCallsAreNotDamage) {
  const TempDir dir;
  const fs::path file = dir / "r";
  EXPECT_EQ(answer(file), RecordAnswer::absent);
  write(file);
  for (const char* failing : {"open_read", "pread"})
    for (const int error : {EIO, EACCES, ENOMEM})
      for (int at = 0; at < 3; ++at) {
        int calls = 0;
        bool reached = false;
        set_read_fault_hook([&](const char* call, const fs::path&) {
          const bool now = std::string_view(call) == failing && calls++ == at;
          reached |= now;
          return now ? error : 0;
        });
        const Record record = read_record(file, id);
        set_read_fault_hook({});
        EXPECT_EQ(record.answer, reached ? RecordAnswer::unreadable : RecordAnswer::ok) << failing << ' ' << at;
      }
  int interrupted = 0;
  set_read_fault_hook([&](const char*, const fs::path&) { return interrupted++ % 2 == 0 ? EINTR : 0; });
  EXPECT_EQ(answer(file), RecordAnswer::ok);
  set_read_fault_hook({});
  fs::create_directory(dir / "folder");
  ::mkfifo((dir / "pipe").c_str(), 0600);
  EXPECT_EQ(answer(dir / "folder"), RecordAnswer::unreadable);
  EXPECT_EQ(answer(dir / "pipe"), RecordAnswer::unreadable);
}

}  // namespace
}  // namespace lh::test::record_test
