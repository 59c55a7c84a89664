#include "core/bytes.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "core/lower.h"

namespace lh {

std::string size_text(int64_t bytes) {
  return bytes < (int64_t{1} << 30) ? fmt::format("{:.1f} MiB", mib(bytes))
                                    : fmt::format("{:.1f} GiB", mib(bytes) / 1024);
}

std::string room_text(int64_t bytes) {
  const bool small = bytes < int64_t{1} << 30;
  const int64_t unit = int64_t{1} << (small ? 20 : 30);
  const int64_t tenths = (10 * bytes + unit - 1) / unit;
  return fmt::format("{}.{} {}", tenths / 10, tenths % 10, small ? "MiB" : "GiB");
}

std::optional<int64_t> size_of(std::string_view text) {
  constexpr std::pair<std::string_view, double> units[] = {
      {"", 0x1p30},    {"b", 1},      {"k", 0x1p10}, {"kb", 1e3},     {"kib", 0x1p10}, {"m", 0x1p20}, {"mb", 1e6},
      {"mib", 0x1p20}, {"g", 0x1p30}, {"gb", 1e9},   {"gib", 0x1p30}, {"t", 0x1p40},   {"tb", 1e12},  {"tib", 0x1p40}};
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !(number > 0)) return std::nullopt;
  std::string_view rest(stop, static_cast<size_t>(end - stop));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  for (const auto& [unit, bytes] : units)
    if (lower(std::string(rest)) == unit) {
      const double size = std::floor(number * bytes);
      return size >= 1 && size < 0x1p62 ? std::optional(static_cast<int64_t>(size)) : std::nullopt;
    }
  return std::nullopt;
}

}  // namespace lh
