// The training loop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "run/update.h"
#include "train/objective.h"
#include "train/output.h"
#include "train/prepare.h"
#include "train/run_folder.h"
#include "train/state.h"

namespace lh {

class Trainer {
 public:
  Trainer(const Registry& registry, Prepared& prepared, const std::string& resume);
  // 0 when all steps ran and the final file is verified, exit_interrupted after a signal.
  int run();

 private:
  void check_start(const std::string& resume);  // refuses at once what would be refused after hours of encoding
  void load();
  void start_or_resume();
  double train_step(int64_t step);  // all micro-batches and the update; gives the mean loss
  StepInputs assemble(const Batch& batch, int64_t micro_step);
  void accumulate(TrainStep& step, int64_t micro);
  bool clip_and_update(int64_t step);  // false: a step skipped by loss scaling
  void save(int64_t step, bool final);
  void make_samples(int64_t step);
  [[noreturn]] void report_non_finite(int64_t step, TrainStep& train_step, const StepInputs& inputs,
                                      const std::string& what);

  const Registry& registry_;
  Prepared& p_;
  const Config& config_;
  RunFolder folder_;
  std::filesystem::path resume_from_;  // folder of states; empty: a new run
  TimestepLaw law_;
  BatchOrder order_;
  std::optional<Weights> weights_;
  DeviceMemory arena_;
  const void* arena_user_ = nullptr;  // the program whose constants are in the arena
  std::vector<std::unique_ptr<Update>> updates_;
  DeviceMemory scalars_;  // lr, step, norm, loss scale state
  RunState state_;
  int64_t skipped_in_a_row_ = 0, skipped_ = 0;
  double grad_norm_ = 0;
  std::unique_ptr<Output> output_;
  std::optional<Decoder> decoder_;
};

}  // namespace lh
