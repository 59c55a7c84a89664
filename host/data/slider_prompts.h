// The prompts that the steps of a slider compare (compile/slider.h), in the place of captions.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace lh {

class SliderPrompts {
 public:
  // Throws lh::Error(Code::config) for a slider between nothing, or beside settings that mean nothing to one.
  explicit SliderPrompts(const Config& config);
  bool any() const { return slider_.on(); }
  const SliderConfig& config() const { return slider_; }
  // Each once, the class first; none where no slider is trained.
  std::vector<std::string> all() const;
  // For the plan, and for the facts of a run.
  std::string text() const;

 private:
  SliderConfig slider_;
};

}  // namespace lh
