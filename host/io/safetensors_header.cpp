// Header JSON by SAX: the document is never held as a tree, and nothing outside the format's grammar passes.
#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/error.h"
#include "io/header_limits.h"
#include "io/stored_dtype.h"

namespace lh {
namespace {

class HeaderReader {
 public:
  HeaderReader(const std::string& path, Header& header) : path_(path), header_(header) {}

  using number_integer_t = int64_t;
  using number_unsigned_t = uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = std::vector<uint8_t>;

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(int64_t v) { return unexpected(fmt::format("the negative number {}", v)); }
  bool number_float(double, const std::string& text) { return unexpected(fmt::format("the number {}", text)); }
  bool binary(binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(uint64_t v) {
    if (state_ != State::shape && state_ != State::offsets) return unexpected(fmt::format("the number {}", v));
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) wrong(fmt::format("{} is above 2^63 - 1", v));
    if (numbers_.size() == LK_MAX_RANK) wrong(fmt::format("more than {} numbers in {}", LK_MAX_RANK, field_));
    numbers_.push_back(static_cast<int64_t>(v));
    return true;
  }

  bool string(std::string& text) {
    if (state_ == State::metadata) {
      if (!header_.metadata.emplace(field_, std::move(text)).second)
        wrong(fmt::format("metadata key \"{}\" twice", field_));
      return true;
    }
    if (state_ != State::tensor || field_ != "dtype") return unexpected("a string");
    set_dtype(text);
    return true;
  }

  bool key(std::string& text) {
    switch (state_) {
      case State::top:
        if (text.size() > longest_name)
          wrong(fmt::format("a name of {} bytes, expected at most {}", text.size(), longest_name));
        if (!names_.insert(text).second) wrong(fmt::format("key \"{}\" twice", text));
        entry_ = {.name = std::move(text), .desc = {}};
        return true;
      case State::tensor:
        if (text != "dtype" && text != "shape" && text != "data_offsets")
          wrong(fmt::format("unknown field \"{}\"", text));
        if (!fields_.insert(text).second) wrong(fmt::format("field \"{}\" twice", text));
        [[fallthrough]];
      default: field_ = std::move(text); return true;
    }
  }

  bool start_object(size_t) {
    if (state_ == State::outside) {
      state_ = State::top;
    } else if (state_ == State::top) {
      state_ = entry_.name == "__metadata__" ? State::metadata : State::tensor;
      fields_.clear();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() {
    if (state_ == State::tensor) {
      if (fields_.size() != 3) wrong("needs the fields dtype, shape and data_offsets");
      if (header_.entries.size() == most_tensors)
        fail(Code::data,
             "{}: more than {} tensors, of which no model has so many. The file is damaged or hostile and "
             "was not loaded",
             path_, most_tensors);
      header_.entries.push_back(std::move(entry_));
    }
    state_ = state_ == State::top ? State::outside : State::top;
    return true;
  }

  bool start_array(size_t) {
    if (state_ != State::tensor || field_ == "dtype") return unexpected("a list");
    state_ = field_ == "shape" ? State::shape : State::offsets;
    numbers_.clear();
    return true;
  }

  bool end_array() {
    if (state_ == State::shape) {
      entry_.desc.shape = Shape(numbers_);
    } else {
      if (numbers_.size() != 2) wrong(fmt::format("{} data_offsets, expected 2", numbers_.size()));
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    }
    state_ = State::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) {
    const std::string_view what = e.what();  // "[json.exception...] parse error at line 1, column 9: ..."
    const size_t detail = what.find(": ");
    fail(Code::data, "{}: the header is not valid JSON at header byte {}: {}. The file is damaged", path_, position,
         detail == std::string_view::npos ? what : what.substr(detail + 2));
  }

 private:
  enum class State { outside, top, metadata, tensor, shape, offsets };

  [[noreturn]] void wrong(const std::string& text) const {
    const bool named = state_ != State::outside && !entry_.name.empty();
    fail(Code::data, "{}: {}{}. The file is damaged or hostile and was not loaded", path_,
         named ? fmt::format("header entry \"{}\": ", entry_.name) : "header: ", text);
  }

  bool unexpected(const std::string& what) const {
    static constexpr std::array<const char*, 6> wanted{"an object",
                                                       "an object",
                                                       "a string",
                                                       "dtype, shape and data_offsets",
                                                       "a non-negative integer",
                                                       "a non-negative integer"};
    wrong(fmt::format("found {}, expected {}{}", what, wanted[static_cast<size_t>(state_)],
                      state_ > State::top ? fmt::format(" at \"{}\"", field_) : std::string()));
  }

  void set_dtype(const std::string& text) {
    for (const StoredDType& known : stored_dtypes) {
      if (known.name != text) continue;
      entry_.desc.dtype = known.dtype;
      return;
    }
    const bool foreign = std::ranges::find(foreign_dtypes, text) != foreign_dtypes.end();
    std::string readable;
    for (const StoredDType& known : stored_dtypes)
      readable += fmt::format("{}{}", readable.empty() ? "" : ", ", known.name);
    fail(Code::data, "{}: tensor \"{}\" has the {} dtype {}; lora-host reads {}. {}", path_, entry_.name,
         foreign ? "unsupported" : "unknown", text, readable,
         foreign ? "Convert the file, or use its original" : "The file is damaged or newer than this program");
  }

  const std::string& path_;
  Header& header_;
  State state_ = State::outside;
  HeaderEntry entry_;
  std::string field_;
  std::vector<int64_t> numbers_;
  std::unordered_set<std::string> names_, fields_;
};

}  // namespace

Header parse_safetensors_header(const std::string& path, const std::string& json) {
  if (json.empty() || json.front() != '{')
    fail(Code::data, "{}: the header starts with byte 0x{:02x}, expected '{{'. This is not a safetensors file", path,
         json.empty() ? 0 : static_cast<unsigned char>(json.front()));
  if (const size_t nul = json.find('\0'); nul != std::string::npos)  // where the parser would take it for the end
    fail(Code::data, "{}: the header is not valid JSON at header byte {}: a NUL. The file is damaged", path, nul);
  Header header;
  HeaderReader reader(path, header);
  nlohmann::json::sax_parse(json, &reader);
  return header;
}

}  // namespace lh
