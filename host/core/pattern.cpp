#include "core/pattern.h"

#include <regex>
#include <stdexcept>

namespace lh {

struct Pattern::Compiled {
  std::regex regex;
};

Pattern::Pattern(const std::string& text) {
  try {
    compiled_ = std::make_shared<const Compiled>(Compiled{std::regex(text)});
  } catch (const std::regex_error& error) {
    throw std::invalid_argument(error.what());
  }
}

bool Pattern::matches(std::string_view name) const {
  return std::regex_match(name.begin(), name.end(), compiled_->regex);
}

}  // namespace lh
