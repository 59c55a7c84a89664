// A regular expression that names are compared with, in the grammar of ECMAScript.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lh {

// Copies share what was compiled. std::regex stays in pattern.cpp: its templates take seconds in every file that uses
// them.
class Pattern {
 public:
  // Throws std::invalid_argument with the reason where the text is no regular expression.
  explicit Pattern(const std::string& text);
  // The whole name is like it.
  bool matches(std::string_view name) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace lh
