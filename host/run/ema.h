// Exponential moving average of the trained weights, a graph that runs inside the recorded step:
//
//   average <- average - (1 - decay) (average - weights)
//
// float32, one launch for all tensors. The decay follows from the number of updates of the average, which is counted on
// the device: a step that loss scaling skips is none. Laws of the warm-up, n = updates - update_after_step:
//   none         decay                                                 (ai-toolkit)
//   num_updates  (1 + n) / (10 + n)                                    (torch-ema, ai-toolkit's use_num_updates)
//   diffusers    (1 + s) / (10 + s), s = n - 1                         (diffusers EMAModel)
//   power        1 - (1 + s / inv_gamma)^-power, s = n - 1             (diffusers EMAModel with use_ema_warmup)
// at least min_decay, at most decay. Where n, or s, is not above 0 the average is a copy of the weights.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "run/program.h"
#include "run/update_plan.h"

namespace lh {

struct EmaMemory {
  std::byte *weights = nullptr, *average = nullptr;  // f32 [elements]
  std::byte* count = nullptr;                        // f32 [1]: updates of the average, this one included
  std::byte* arena = nullptr;                        // plan().plan.bytes
};

class Ema {
 public:
  // Throws lh::Error(Code::config) where keys of train.ema_config exclude each other.
  Ema(const EmaConfig& config, int64_t elements);
  const UpdateGraphPlan& plan() const { return plan_; }
  std::string text() const;  // "decay 0.999, warm-up diffusers"

  void bind(Device& device, const EmaMemory& memory);  // before what follows
  void run();                                          // one update
  void start();                                        // a copy of the weights as they are

 private:
  EmaConfig config_;
  UpdateGraphPlan plan_;
  int64_t bytes_;
  Device* device_ = nullptr;
  EmaMemory memory_;
  std::unique_ptr<Program> program_;
};

}  // namespace lh
