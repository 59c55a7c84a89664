// The training loop. The device works on a step while the host makes the inputs of the next one and looks at the loss
// of the last one; what needs the result of a step (a save, samples) waits for it.
//
// Several processes may train one run (world/world.h): all of them run this loop and come to the same decisions; the
// first one writes, makes samples and is spoken to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "io/control.h"
#include "io/run_folder.h"
#include "sample/generation_parameters.h"
#include "train/batch_maker.h"
#include "train/changes.h"
#include "train/output.h"
#include "train/prepare.h"
#include "train/state.h"
#include "train/step_runner.h"
#include "world/world.h"

namespace lh {

class Trainer {
 public:
  // How a run begins.
  struct Start {
    std::string resume;            // as Options::resume has it
    std::string from;              // the step of a state, "none", or empty
    std::filesystem::path replay;  // the history of another run, whose changes this new one repeats; or empty
    bool allow_changes = false;    // goes on from a state of other data or another course
  };
  Trainer(Prepared& prepared, World& world, const Start& start);
  // 0 when all steps ran and the final file is verified, exit_interrupted after a signal. A folder that is deleted
  // while the run writes there is an lh::Error(Code::output_lost) that says where the state is.
  int run();
  bool apart() const { return apart_; }  // the processes ended each for itself, in a hurry: they do not meet again

 private:
  // Refuses at once what would be refused after hours of encoding.
  void check_start(const Start& start);
  void check_folder(const std::string& resume, const std::string& from);
  void go_on_from_saved();    // a step has as many micro-batches as it had
  void take_choices() const;  // those of the state that the run goes on from
  void note_choices();        // those of all processes, into the state
  void load();
  void open_collectives();
  void start_or_resume();
  MicroBatch micro_batch(int64_t index);
  void enqueue(int64_t step);
  double collect(int64_t step);             // waits for the step; gives its loss
  bool boundary_after(int64_t step) const;  // something is done after the step that needs its result
  std::filesystem::path save(int64_t step, bool final);
  std::filesystem::path write_lora(int64_t step, bool final);
  void make_samples(int64_t step, bool only_missing = false);
  bool samples_due(int64_t step) const;  // after so many steps
  bool save_due(int64_t step) const;
  bool validation_due(int64_t step) const;
  double validate();  // the loss of the images that are set apart; no step may be in flight
  void make_samples(SampleSet& denoisers, int64_t step, const std::vector<SampleRequest>& requests,
                    const std::function<void(size_t index, const Sampled& sampled)>& write);
  std::string parameters_of(const SampleRequest& request, int64_t step) const;  // that its file has
  void finish_resumed_step();  // what a kill after its state left out: the LoRA, samples
  int run_steps();
  int leave();  // saves unless that is done and ends, because somebody asked for it
  void settle();
  [[noreturn]] void rescue(const RankLost& lost);  // saves what is whole, where this process is the one to do it
  void compare_ranks() const;                      // all have the same trained tensors
  [[noreturn]] void leave_lost_folder();
  // Between two steps, none of them in flight: settings change, and who asks is answered. False: the run has to stop.
  bool at_border(int64_t step);
  void agree();        // all processes know what one of them has been asked
  bool undisturbed();  // nobody asked for anything
  void serve(int64_t step);
  void listen();
  bool asked();
  ControlAnswer answer(const ControlRequest& request, int64_t step);
  std::string sample(const std::vector<std::string>& prompts, int64_t step);
  std::string status(int64_t step) const;
  [[noreturn]] void report_non_finite(int64_t step, const MicroBatch& batch, const std::string& what);

  Prepared& p_;
  World& world_;
  const Config& config_;
  std::optional<RunFolder> folder_;  // of the process that writes
  StateSource resume_from_;
  int64_t on_disk_ = -1;           // the last step whose state is in the run's folder
  std::optional<RunState> saved_;  // that the run goes on from, without its tensors
  std::optional<RunChanges> changes_;
  std::optional<ControlSocket> control_;
  bool paused_ = false, told_to_stop_ = false;
  bool stopping_ = false, asked_ = false, folder_lost_ = false;  // what all have agreed on
  bool started_ = false, apart_ = false;
  BatchMaker maker_;
  std::optional<Collectives> collectives_;  // where there are other processes
  std::optional<Weights> weights_;
  std::optional<StepRunner> runner_;
  RunState state_;
  int64_t skipped_in_a_row_ = 0, skipped_ = 0;
  double grad_norm_ = 0, loss_ = 0;
  std::unique_ptr<Output> output_;                  // of the process that writes
  std::optional<GenerationParameters> parameters_;  // where it makes samples
};

}  // namespace lh
