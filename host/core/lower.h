// Words that are compared without regard to case.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace lh {

// With its ASCII letters in lower case.
inline std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// With its ASCII letters in capitals.
inline std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace lh
