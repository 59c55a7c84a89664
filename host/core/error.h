// The one exception of the host. Its text says what, where, expected, found and the fix; its code becomes the exit
// status.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace lh {

// Exit statuses of lora-host; docs/errors.md lists them.
enum class Code : int {
  config = 2,       // command line or configuration
  data = 3,         // model, image, caption or checkpoint file
  resource = 4,     // device, memory, disk
  numeric = 5,      // NaN or infinity
  plugin = 6,       // plugin refused or misbehaving
  internal = 8,     // a bug of the host
  output_lost = 9,  // the output folder was deleted or moved away while the run wrote to it
  no_driver = 10,   // no GPU driver
  old_driver = 11,  // a GPU driver that is too old
  library = 12,     // a version of a GPU library that does not work
};
inline constexpr int exit_interrupted = 75;  // stopped by a signal after saving; can be resumed

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

[[noreturn]] void throw_error(Code code, fmt::string_view format, fmt::format_args arguments);

template <typename... Args>
[[noreturn]] void fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(code, format, fmt::make_format_args(args...));
}

}  // namespace lh
