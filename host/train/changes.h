// The settings of a run over its steps. What its history has is repeated, phases begin, and settings are set by hand;
// each change is written down before it acts, so that a run that is killed goes on as it would have.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/run_settings.h"
#include "io/history.h"
#include "train/prepare.h"
#include "train/state.h"
#include "train/step_runner.h"

namespace lh {

class RunChanges {
 public:
  // What is known before the first step: of a new run, one whose history is that of `replay` (a file, or empty), or
  // one that goes on from `saved`. Makes room in the plan for every optimizer that is to come. Throws
  // lh::Error(Code::config) for a history that another configuration made, Code::data for one that is damaged,
  // Code::resource where an optimizer does not fit.
  struct Start {
    const RunState* saved = nullptr;
    bool own_folder = true;  // `saved` is of this run's folder
    bool resumed = false;    // --resume: a history that is there goes on, with a state or without
    bool anew = false;       // --resume-from none: without the states that are there
    std::filesystem::path replay = {};
    bool writes = true;  // the history; not where another process of the run does
  };
  RunChanges(Prepared& prepared, const Start& start);

  const RunSettings& settings() const { return settings_; }
  size_t applied() const { return applied_; }  // changes of the history that are in force
  // Is there a change to be made after `step` steps?
  bool due(int64_t step) const;
  // Makes those changes. No step may be in flight; `state` is where the run stands.
  void apply_due(StepRunner& runner, RunState& state);
  // Settings by hand, {"lr=1e-5"}. The first throws lh::Error(Code::config, Code::resource) for those that cannot be
  // had, and changes nothing; after it the second lets them be in force from the next step on and says so.
  RunSettings proposed(const std::vector<std::string>& assignments, int64_t step);
  std::string set(const RunSettings& next, const std::vector<std::string>& assignments, StepRunner& runner,
                  RunState& state);

  // For the step after `step` steps: of each group of tensors, and of the denoiser.
  std::vector<double> rates(int64_t step) const;
  double rate(int64_t step) const;

 private:
  void begin(const Start& start, const std::string& file);
  void plan_ahead();
  TrainSection scheduled() const;
  std::string take_over(const RunSettings& next, StepRunner& runner, RunState& state);

  Prepared& p_;
  History history_;
  RunSettings settings_;
  size_t applied_ = 0;
  std::vector<double> rates_;  // of each group, before the schedule
};

}  // namespace lh
