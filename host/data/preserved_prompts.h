// Prompts for which a run keeps what the model said before (compile/preserve.h), as ai-toolkit has them: each caption
// with the word of the class in the place of the trigger word, or the empty one.
#pragma once

#include <string>

#include "config/config.h"
#include "data/sample.h"

namespace lh {

class PreservedPrompts {
 public:
  // Throws lh::Error(Code::config) where both are asked for, or where there is nothing to replace.
  explicit PreservedPrompts(const Config& config);
  bool any() const { return kind_ != Kind::none; }
  double multiplier() const { return multiplier_; }
  // Where there are any: the one of this sample, whose caption this is.
  std::string of(const Sample& sample, const std::string& caption) const;
  // For the plan, and for the facts of a run.
  std::string text() const;

 private:
  enum class Kind { none, word, blank } kind_ = Kind::none;
  std::string word_;
  double multiplier_ = 1;
};

}  // namespace lh
