// Fuzz targets: each gives any bytes to one reader of files that come from outside, and checks what the reader
// promises.
//
// A reader takes an input or refuses it with an lh::Error. Everything else is a report: another exception, a crash, a
// sanitizer's complaint, a promise that does not hold (Broken), an error that says that the host has a bug. lora_tests
// runs the seeds, mutations of them and the corpus (tests/fuzz_test.cpp); libFuzzer goes on from there
// (scripts/fuzz.sh, docs/fuzzing.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "fuzz/mutate.h"

namespace lh::fuzz {

using Bytes = std::span<const std::byte>;

struct Target {
  std::string_view name;
  bool (*run)(Bytes input);  // true: it was taken
  std::vector<std::string> (*seeds)();
  std::string (*edit)(const std::string& input, Random& random) = nullptr;  // a mutation beside those of bytes
  std::string_view dictionary = {};                                         // for libFuzzer: a file beside this one
  size_t longest = 1024;                                                    // bytes of an input that libFuzzer makes
};
std::span<const Target> targets();

// A promise that a reader broke.
struct Broken : std::logic_error {
  using std::logic_error::logic_error;
};
void require(bool holds, const char* promise);

// What the reader makes of an input; true: it was taken, false: refused with an lh::Error that is no bug of the host's.
template <typename Read>
bool taken(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.code() == Code::internal) throw Broken(error.what());
    return false;
  }
}

inline std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// A file that lies in memory. Readers open it by its path; no disk is touched.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::filesystem::path& holding(Bytes bytes);
  const std::filesystem::path& path() const { return path_; }

 private:
  int fd_;
  std::filesystem::path path_;
};

// A folder whose one file, `name`, is a MemoryFile.
class MemoryFolder {
 public:
  explicit MemoryFolder(const std::string& name);
  ~MemoryFolder();
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void hold(Bytes bytes) { file_.holding(bytes); }

 private:
  MemoryFile file_;
  std::filesystem::path path_;
};

// A safetensors file as inputs spell it, whose length field mutations need not guess: two bytes with the number of
// bytes of JSON, the JSON, the data.
std::string spelled(std::string_view json, std::string_view data);
std::string safetensors_of(Bytes spelled);

}  // namespace lh::fuzz
