// The training loop. The device works on a step while the host makes the inputs of the next one and looks at the loss
// of the last one; what needs the result of a step (a save, samples) waits for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "io/run_folder.h"
#include "train/batch_maker.h"
#include "train/output.h"
#include "train/prepare.h"
#include "train/state.h"
#include "train/step_runner.h"

namespace lh {

class Trainer {
 public:
  // resume: empty = a new run, "auto" = this run's states, else a path. from: the step of a state, or "none".
  Trainer(Prepared& prepared, const std::string& resume, const std::string& from = {});
  // 0 when all steps ran and the final file is verified, exit_interrupted after a signal. A folder that is deleted
  // while the run writes there is an lh::Error(Code::output_lost) that says where the state is.
  int run();

 private:
  // Refuses at once what would be refused after hours of encoding.
  void check_start(const std::string& resume, const std::string& from);
  void load();
  void start_or_resume();
  MicroBatch micro_batch(int64_t index);
  void enqueue(int64_t step);
  double collect(int64_t step);             // waits for the step; gives its loss
  bool boundary_after(int64_t step) const;  // something is done after the step that needs its result
  void save(int64_t step, bool final);
  void write_lora(int64_t step, bool final);
  void make_samples(int64_t step, bool only_missing = false);
  void finish_resumed_step();  // what a kill after its state left out: the LoRA, samples
  int run_steps();
  int stopped();  // saves unless that is done; the exit status
  [[noreturn]] void leave_lost_folder();
  [[noreturn]] void report_non_finite(int64_t step, MicroBatch batch, const std::string& what);

  Prepared& p_;
  const Config& config_;
  RunFolder folder_;
  StateSource resume_from_;
  int64_t saved_ = -1;  // the last step whose state is on disk
  BatchOrder order_;
  BatchMaker maker_;
  std::optional<Weights> weights_;
  std::optional<StepRunner> runner_;
  RunState state_;
  int64_t skipped_in_a_row_ = 0, skipped_ = 0;
  double grad_norm_ = 0;
  std::unique_ptr<Output> output_;
};

}  // namespace lh
