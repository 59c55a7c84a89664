// Lines that say which algorithm was fastest: "device <tab> library <tab> product <tab> hex <tab> checksum". Every
// backend can tell whether they are damaged, also one that chooses nothing by time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lk {

inline constexpr size_t algorithm_bytes = 64;
inline constexpr std::string_view hex_digits = "0123456789abcdef";

// FNV-1a of 64 bits: against a failing disk and a careless editor.
inline std::string checksum_of_choice(std::string_view line) {
  uint64_t sum = 0xcbf29ce484222325;
  for (const char c : line) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string hex;
  for (int shift = 60; shift >= 0; shift -= 4) hex += hex_digits[sum >> shift & 15];
  return hex;
}

inline std::string choice_line(const std::string& product, const std::string& hex) {
  const std::string line = product + '\t' + hex;
  return line + '\t' + checksum_of_choice(line) + '\n';
}

// What is before the last tab but one, and the hex behind it; nothing where the line is damaged.
inline std::optional<std::pair<std::string, std::string>> parse_choice(std::string_view line) {
  const size_t sum = line.rfind('\t');
  if (sum == std::string_view::npos || checksum_of_choice(line.substr(0, sum)) != line.substr(sum + 1)) return {};
  line = line.substr(0, sum);
  if (std::ranges::count(line, '\t') != 3) return {};
  const size_t tab = line.rfind('\t');
  const std::string_view hex = line.substr(tab + 1);
  if (hex.size() != 2 * algorithm_bytes || hex.find_first_not_of(hex_digits) != std::string_view::npos) return {};
  return std::pair(std::string(line.substr(0, tab)), std::string(hex));
}

// take(product, hex) for each line of a text; false at the first that is damaged.
template <typename Take>
bool each_choice(std::string_view lines, const Take& take) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    auto line = parse_choice(lines.substr(0, end));
    if (!line) return false;
    take(std::move(line->first), std::move(line->second));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return true;
}

}  // namespace lk
