// Messages on stderr. LORA_LOG=trace|debug|info|warning|error|off sets the level, LORA_VERBOSE asks for explanations by
// topic: graph (what was built), plan (memory plan), dispatch (which kernel ran and why), memory, time.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <vector>

namespace lh {

void init_log();

enum class LogLevel { debug, info, warning, error };
void write_log(LogLevel level, fmt::string_view format, fmt::format_args arguments);

// One line, or several, where LORA_LOG lets the level through. spdlog stays in log.cpp: its own calls format in the
// file that makes them, which takes seconds to compile.
template <typename... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  write_log(level, format, fmt::make_format_args(args...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  write_log(LogLevel::debug, format, fmt::make_format_args(args...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  write_log(LogLevel::info, format, fmt::make_format_args(args...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  write_log(LogLevel::warning, format, fmt::make_format_args(args...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  write_log(LogLevel::error, format, fmt::make_format_args(args...));
}

// Whether LORA_VERBOSE names the topic ("plan,time" or "plan|time"). Reads the environment once.
bool verbose(std::string_view topic);

// The topics of a LORA_VERBOSE text; unknown words go to `unknown`.
std::vector<std::string> parse_topics(std::string_view text, std::vector<std::string>& unknown);

}  // namespace lh
