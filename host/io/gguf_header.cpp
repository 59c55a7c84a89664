#include "io/gguf_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "core/error.h"
#include "core/utf8.h"
#include "io/cut_short.h"
#include "io/header_limits.h"

namespace lh {
namespace {

static_assert(std::endian::native == std::endian::little, "these GGUF files are little-endian and so is this reader");

constexpr int64_t piece = 1 << 20;                      // read at a time
constexpr int64_t longest_header = int64_t{256} << 20;  // the words of a language model are in it
constexpr std::string_view shape_key = "comfy.gguf.orig_shape.";

// Of a value in the metadata.
enum class Kind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

class Cursor {
 public:
  explicit Cursor(const InputFile& file) : file_(file) {}

  int64_t at() const { return at_; }

  [[noreturn]] void wrong(const std::string& what) const {
    fail(Code::data, "{}: at byte {}: {}. The file is damaged, or no GGUF file", file_.path().string(), at_, what);
  }

  template <class T>
  T number() {
    T value;
    bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  std::string text(uint64_t longest, const char* what) {
    const auto length = number<uint64_t>();
    if (length > longest) wrong(fmt::format("{} of {} bytes, expected at most {}", what, length, longest));
    need(static_cast<int64_t>(length));
    std::string text(static_cast<size_t>(length), '\0');
    bytes(std::as_writable_bytes(std::span(text)));
    if (const auto bad = invalid_utf8(text)) wrong(fmt::format("{}: byte {} is not valid UTF-8", what, *bad));
    return text;
  }

  void skip(int64_t count) {
    need(count);
    at_ += count;
  }

  // Says whether the file has so many bytes more, before memory is taken for them.
  void need(int64_t count) const {
    if (count > file_.size() - at_)
      throw CutShort(fmt::format("{}: file ends at {} bytes but its header needs {} at byte {}. The file is cut short",
                                 file_.path().string(), file_.size(), count, at_));
    if (at_ + count > longest_header) wrong(fmt::format("a header of more than {} bytes", longest_header));
  }

 private:
  void bytes(std::span<std::byte> out) {
    const auto count = static_cast<int64_t>(out.size());
    need(count);
    if (count > piece) {
      file_.read(at_, out);
    } else {
      if (at_ < first_ || at_ + count > first_ + static_cast<int64_t>(buffer_.size())) {
        first_ = at_;
        buffer_.resize(static_cast<size_t>(std::min(piece, file_.size() - at_)));
        file_.read(at_, buffer_);
      }
      std::copy_n(buffer_.begin() + (at_ - first_), count, out.begin());
    }
    at_ += count;
  }

  const InputFile& file_;
  int64_t at_ = 0, first_ = 0;
  std::vector<std::byte> buffer_;
};

class HeaderReader {
 public:
  explicit HeaderReader(const InputFile& file) : in_(file) {}

  GgufHeader read() {
    in_.skip(4);  // "GGUF"
    check_version();
    const uint64_t tensors = count("tensors"), entries = count("entries of metadata");
    for (uint64_t i = 0; i < entries; ++i) read_entry();
    std::set<std::string> names;
    for (uint64_t i = 0; i < tensors; ++i) {
      read_tensor();
      if (!names.insert(header_.entries.back().name).second)
        in_.wrong(fmt::format("tensor \"{}\" twice", header_.entries.back().name));
    }
    for (const auto& [name, shape] : shapes_)
      if (!names.contains(name)) in_.wrong(fmt::format("{}{} is the shape of no tensor", shape_key, name));
    header_.data_start = checked_add(in_.at(), alignment_ - 1) / alignment_ * alignment_;
    for (const GgufEntry& entry : header_.entries)
      if (entry.begin % alignment_ != 0)
        in_.wrong(fmt::format("tensor \"{}\" starts at data byte {}, expected a multiple of {} (general.alignment)",
                              entry.name, entry.begin, alignment_));
    return std::move(header_);
  }

 private:
  void check_version() {
    const auto version = in_.number<uint32_t>();
    if (version == 2 || version == 3) return;
    if (const auto turned = __builtin_bswap32(version); turned == 2 || turned == 3)
      in_.wrong("a big-endian file, expected a little-endian one: convert it again");
    in_.wrong(fmt::format("version {}, expected 2 or 3: convert it again with a newer tool", version));
  }

  uint64_t count(const char* what) {
    const auto number = in_.number<uint64_t>();
    if (number > most_tensors) in_.wrong(fmt::format("{} {}, expected at most {}", number, what, most_tensors));
    return number;
  }

  void read_entry() {
    const std::string key = in_.text(longest_name, "a metadata key");
    const auto kind = static_cast<Kind>(in_.number<uint32_t>());
    if (kind == Kind::array) return read_array(key);
    if (!header_.metadata.emplace(key, scalar(key, kind)).second)
      in_.wrong(fmt::format("metadata key \"{}\" twice", key));
    if (key == "general.alignment") set_alignment(kind);
  }

  void set_alignment(Kind kind) {
    const std::string& text = header_.metadata.at("general.alignment");
    const bool number = kind == Kind::u32 && text.size() < 7;
    alignment_ = number ? std::stoll(text) : 0;
    if (alignment_ == 0 || !std::has_single_bit(static_cast<uint64_t>(alignment_)))
      in_.wrong(fmt::format("general.alignment {}, expected a power of two", text));
  }

  std::string scalar(const std::string& key, Kind kind) {
    switch (kind) {
      case Kind::u8: return std::to_string(in_.number<uint8_t>());
      case Kind::i8: return std::to_string(in_.number<int8_t>());
      case Kind::u16: return std::to_string(in_.number<uint16_t>());
      case Kind::i16: return std::to_string(in_.number<int16_t>());
      case Kind::u32: return std::to_string(in_.number<uint32_t>());
      case Kind::i32: return std::to_string(in_.number<int32_t>());
      case Kind::f32: return fmt::format("{}", in_.number<float>());
      case Kind::boolean: return in_.number<uint8_t>() != 0 ? "true" : "false";
      case Kind::string: return in_.text(static_cast<uint64_t>(longest_header), "a text of the metadata");
      case Kind::u64: return std::to_string(in_.number<uint64_t>());
      case Kind::i64: return std::to_string(in_.number<int64_t>());
      case Kind::f64: return fmt::format("{}", in_.number<double>());
      case Kind::array: break;
    }
    in_.wrong(fmt::format("metadata key \"{}\": a value of unknown type {}", key, static_cast<uint32_t>(kind)));
  }

  void read_array(const std::string& key) {
    const auto kind = static_cast<Kind>(in_.number<uint32_t>());
    const auto length = in_.number<uint64_t>();
    if (length > static_cast<uint64_t>(longest_header))
      in_.wrong(fmt::format("metadata key \"{}\": a list of {}", key, length));
    const bool shape = key.starts_with(shape_key);
    if (shape && (kind != Kind::i32 || length > LK_MAX_RANK))
      in_.wrong(fmt::format("metadata key \"{}\": expected at most {} numbers of 32 bits", key, LK_MAX_RANK));
    std::vector<int64_t> dims;
    if (kind == Kind::string) {
      for (uint64_t i = 0; i < length; ++i) {  // words of language models are not always UTF-8
        const auto bytes = in_.number<uint64_t>();
        if (bytes > static_cast<uint64_t>(longest_header)) in_.wrong(fmt::format("a text of {} bytes", bytes));
        in_.skip(static_cast<int64_t>(bytes));
      }
    } else if (shape) {
      for (uint64_t i = 0; i < length; ++i) dims.push_back(in_.number<int32_t>());
    } else {
      in_.skip(checked_mul(static_cast<int64_t>(length), size_of(key, kind)));
    }
    if (shape && !shapes_.emplace(key.substr(shape_key.size()), dims).second)
      in_.wrong(fmt::format("metadata key \"{}\" twice", key));
  }

  int64_t size_of(const std::string& key, Kind kind) const {
    switch (kind) {
      case Kind::u8:
      case Kind::i8:
      case Kind::boolean: return 1;
      case Kind::u16:
      case Kind::i16: return 2;
      case Kind::u32:
      case Kind::i32:
      case Kind::f32: return 4;
      case Kind::u64:
      case Kind::i64:
      case Kind::f64: return 8;
      default:
        in_.wrong(fmt::format("metadata key \"{}\": a list of unknown type {}", key, static_cast<uint32_t>(kind)));
    }
  }

  void read_tensor() {
    GgufEntry entry;
    entry.name = in_.text(longest_name, "a tensor's name");
    const auto rank = in_.number<uint32_t>();
    if (rank > LK_MAX_RANK)
      in_.wrong(fmt::format("tensor \"{}\" of {} axes, expected at most {}", entry.name, rank, LK_MAX_RANK));
    std::vector<int64_t> dims;
    for (uint32_t i = 0; i < rank; ++i) dims.push_back(in_.number<int64_t>());
    std::ranges::reverse(dims);  // the file has the axis first along which neighbours lie
    entry.row = dims.empty() ? 1 : dims.back();
    entry.shape = checked_shape(entry.name, std::move(dims));
    if (const auto known = shapes_.find(entry.name); known != shapes_.end()) {
      Shape before = checked_shape(entry.name, known->second);
      if (before.numel() != entry.shape.numel())
        in_.wrong(fmt::format("tensor \"{}\" is {}, which is not {} of {}{}", entry.name, entry.shape.text(),
                              before.text(), shape_key, entry.name));
      entry.shape = std::move(before);
    }
    entry.type = in_.number<uint32_t>();
    entry.begin = in_.number<int64_t>();
    if (entry.begin < 0) in_.wrong(fmt::format("tensor \"{}\" starts beyond 2^63", entry.name));
    header_.entries.push_back(std::move(entry));
  }

  // Whose number of elements fits 64 bits, in float32 too.
  Shape checked_shape(const std::string& name, std::vector<int64_t> dims) const {
    if (std::ranges::any_of(dims, [](int64_t dim) { return dim <= 0; }))
      in_.wrong(fmt::format("tensor \"{}\" has an axis of no length, or one beyond 2^63", name));
    Shape shape(std::move(dims));
    try {
      (void)Desc{DType::f32, shape}.bytes();
    } catch (const Error&) {
      in_.wrong(fmt::format("tensor \"{}\": shape {} overflows 64 bits", name, shape.text()));
    }
    return shape;
  }

  Cursor in_;
  GgufHeader header_;
  int64_t alignment_ = 32;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

}  // namespace

GgufHeader read_gguf_header(const InputFile& file) { return HeaderReader(file).read(); }

}  // namespace lh
