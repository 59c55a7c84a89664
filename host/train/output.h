// What a run writes for people and tools: metrics, loss curve, event file, sample images, LoRA files.
// RunFolder has made and locked the folder before.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/event_file.h"
#include "data/sample_file.h"
#include "io/lora_file.h"

namespace lh {

struct StepMetrics {
  double loss = 0, lr = 0, grad_norm = 0;
  std::optional<double> validation_loss = {};
};

class Output {
 public:
  // Metrics after `resumed_step` are dropped.
  Output(const Config& config, int64_t resumed_step);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void metrics(int64_t step, const StepMetrics& values);
  void sample(int64_t step, size_t index, const Sampled& sampled);
  bool has_sample(int64_t step, size_t index) const;
  void sync_metrics() const;  // what was written so far survives a power cut
  // One that was asked for by hand: samples/asked_000000100_0.png, the next number that is free. Gives its path.
  std::filesystem::path asked_sample(int64_t step, const Sampled& sampled);
  // A LoRA file; `step` is in the name unless it is the final one.
  std::filesystem::path lora(int64_t step, bool final, const std::vector<LoraModule>& modules,
                             const CheckpointSpec& spec, const LoraMetadata& metadata) const;
  // Removes the LoRA files of all but the newest save.max_step_saves_to_keep of these steps; what others put there
  // under such a name stays. One that cannot be removed is tried again the next time.
  void prune_loras(std::set<int64_t>& steps);
  void loss_curve() const;  // loss.png
  // before_after.png: the samples of step 0 beside those of `step`, a row for each prompt; of clips their first frames.
  // Nothing when step 0 was not sampled; gives the path otherwise.
  std::optional<std::filesystem::path> comparison(int64_t step, const std::vector<std::string>& prompts) const;
  std::filesystem::path folder() const { return folder_; }

 private:
  // The file that is there, if any.
  std::optional<std::filesystem::path> found_sample(int64_t step, size_t index) const;
  std::filesystem::path lora_path(int64_t step) const;
  const Config& config_;
  std::filesystem::path folder_;
  int metrics_ = -1;
  std::unique_ptr<EventFile> events_;
  std::set<int64_t> not_removed_;
};

}  // namespace lh
