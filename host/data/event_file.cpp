// TensorBoard's event file: TFRecord frames around protobuf Event messages, which are few enough to encode by hand.
#include "data/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "data/crc32c.h"

namespace lh {
namespace {

template <typename T>
void append_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Protobuf fields: key = number << 3 | wire type.
void append_integer(std::string& out, uint32_t field, uint64_t value) {
  append_varint(out, field << 3 | 0);
  append_varint(out, value);
}
void append_double(std::string& out, uint32_t field, double value) {
  append_varint(out, field << 3 | 1);
  append_little_endian(out, std::bit_cast<uint64_t>(value));
}
void append_float(std::string& out, uint32_t field, float value) {
  append_varint(out, field << 3 | 5);
  append_little_endian(out, std::bit_cast<uint32_t>(value));
}
void append_bytes(std::string& out, uint32_t field, std::string_view value) {
  append_varint(out, field << 3 | 2);
  append_varint(out, value.size());
  out += value;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Event: 1 wall_time, 2 step, 3 file_version, 5 summary.
std::string event_head(int64_t step) {
  std::string event;
  append_double(event, 1, now());
  append_integer(event, 2, static_cast<uint64_t>(step));
  return event;
}

// Summary: 1 value (repeated). Value: 1 tag, then what the caller adds.
std::string summary_event(int64_t step, const std::string& tag, const std::string& value_fields) {
  std::string value, summary, event = event_head(step);
  append_bytes(value, 1, tag);
  value += value_fields;
  append_bytes(summary, 1, value);
  append_bytes(event, 5, summary);
  return event;
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "localhost";
  for (char& c : name)
    if (c == '/') c = '_';
  return name;
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);  // a failure shows when the file is opened
  const std::string base =
      fmt::format("events.out.tfevents.{:010}.{}.{}", static_cast<int64_t>(now()), host_name(), getpid());
  constexpr int most = 1000;  // several files of one process in one second
  std::filesystem::path path = folder / base;
  for (int i = 1; i <= most; ++i) {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ >= 0 || errno != EEXIST) break;
    path = folder / fmt::format("{}.{}", base, i);
  }
  if (fd_ < 0)
    fail(Code::resource, "event file {}: cannot be created: {} (check the folder's rights and space)", path.string(),
         std::strerror(errno));
  std::string event;
  append_double(event, 1, now());
  append_bytes(event, 3, "brain.Event:2");
  try {
    record(event);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

EventFile::~EventFile() {
  if (fd_ >= 0) ::close(fd_);
}

void EventFile::scalar(const std::string& tag, int64_t step, float value) {
  std::string fields;
  append_float(fields, 2, value);  // simple_value
  record(summary_event(step, tag, fields));
}

void EventFile::image(const std::string& tag, int64_t step, const Image& image) {
  const std::vector<std::byte> png = encode_png(image);
  // Image: 1 height, 2 width, 3 colorspace (3 = RGB), 4 encoded_image_string.
  std::string picture, fields;
  append_integer(picture, 1, static_cast<uint64_t>(image.height));
  append_integer(picture, 2, static_cast<uint64_t>(image.width));
  append_integer(picture, 3, 3);
  append_bytes(picture, 4, {reinterpret_cast<const char*>(png.data()), png.size()});
  append_bytes(fields, 4, picture);
  record(summary_event(step, tag, fields));
}

void EventFile::record(const std::string& event) {
  std::string frame;
  append_little_endian(frame, static_cast<uint64_t>(event.size()));
  append_little_endian(frame, masked_crc32c(frame));
  frame += event;
  append_little_endian(frame, masked_crc32c(event));
  ssize_t written = 0;
  do {
    written = ::write(fd_, frame.data(), frame.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(frame.size())) return;
  const int error = written < 0 ? errno : ENOSPC;
  // A part of a record would make readers stop here for ever.
  const off_t end = ::lseek(fd_, 0, SEEK_END);
  const bool whole = written <= 0 || (end >= written && ::ftruncate(fd_, end - written) == 0);
  fail(Code::resource, "event file: {} of {} bytes written: {}{} (free space on the disk)",
       std::max<ssize_t>(written, 0), frame.size(), std::strerror(error), whole ? "" : "; the file's end is damaged");
}

}  // namespace lh
