// Whole lines on stderr past the progress bar; level and topics by environment.
#include "core/log.h"

#include <fmt/ranges.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "core/progress.h"

namespace lh {
namespace {

constexpr std::string_view known_topics[] = {"graph", "plan", "dispatch", "memory", "time"};

// Writes whole lines to stderr, past a progress bar that may stand there.
class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    Progress::make_room();
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
  void flush_() override { std::fflush(stderr); }
};

}  // namespace

void init_log() {
  auto logger = std::make_shared<spdlog::logger>("lora-host", std::make_shared<StderrSink>());
  logger->set_pattern("%L %v");  // "I loaded 128 images"
  const char* level = std::getenv("LORA_LOG");
  const std::string name = level ? level : "info";
  const auto parsed = spdlog::level::from_str(name);
  const bool known = parsed != spdlog::level::off || name == "off";  // from_str answers off for what it does not know
  logger->set_level(known ? parsed : spdlog::level::info);
  spdlog::set_default_logger(logger);
  if (!known) log_warning("LORA_LOG: unknown level {}. Known: trace, debug, info, warning, error, off", name);
}

void write_log(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                  spdlog::level::err};
  const spdlog::level::level_enum known = levels[static_cast<int>(level)];
  if (spdlog::should_log(known)) spdlog::log(known, fmt::vformat(format, arguments));
}

std::vector<std::string> parse_topics(std::string_view text, std::vector<std::string>& unknown) {
  std::vector<std::string> topics;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(",| "), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const bool known = std::ranges::find(known_topics, word) != std::end(known_topics);
    (known ? topics : unknown).push_back(word);
  }
  return topics;
}

bool verbose(std::string_view topic) {
  static const std::vector<std::string> topics = [] {
    const char* text = std::getenv("LORA_VERBOSE");
    std::vector<std::string> unknown;
    auto found = parse_topics(text ? text : "", unknown);
    if (!unknown.empty())
      log_warning("LORA_VERBOSE: unknown topic {}. Known: {}", fmt::join(unknown, ", "), fmt::join(known_topics, ", "));
    return found;
  }();
  return std::ranges::find(topics, topic) != topics.end();
}

}  // namespace lh
