// Groups of trained tensors: each has its learning rate and its rule, with options of its own where the user asks for
// it. The tensors of a component (the denoiser, a text encoder) are a group, or one for each role and each learning
// rate of them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "plugin/optimizer.h"
#include "run/update_plan.h"

namespace lh {

// The optimizer of a run, and one for each role whose weight_decay is its own.
class OptimizerRules {
 public:
  OptimizerRules(const Registry& registry, const TrainSection& train);
  const Optimizer& base() const { return *base_; }
  const Optimizer& of(int32_t role) const;
  bool by_role() const { return by_role_; }  // options or learning rates of the roles differ

 private:
  std::unique_ptr<Optimizer> base_;
  std::map<int32_t, std::unique_ptr<Optimizer>> own_;
  bool by_role_;
};

struct ParameterGroups {
  // Gives each tensor its group. Throws lh::Error(Code::config) where train.text_encoder_lr is a list of another length
  // than there are text encoders, or a pattern of train.module_lr_ratio is like no module.
  ParameterGroups(const OptimizerRules& rules, const TrainSection& train, std::vector<TrainedTensor>& tensors);
  std::vector<UpdateGroup> groups;
  std::vector<double> lr;  // of each, before the schedule
};

// The optimizer that some settings ask for, planned for the tensors of a run.
class OptimizerSetup {
 public:
  OptimizerSetup(const Registry& registry, const TrainSection& train, const std::vector<TrainedTensor>& tensors,
                 StatePlace place = StatePlace::device);
  const OptimizerRules& rules() const { return rules_; }
  const UpdatePlan& plan() const { return *plan_; }
  UpdatePlan plan_at(StatePlace place) const;  // the same updates with the states there
  // Do these settings ask for the same updates, at whatever learning rates?
  bool serves(const TrainSection& train) const;
  // Of each group, before the schedule.
  std::vector<double> rates(const TrainSection& train) const;

 private:
  std::string asked_;
  OptimizerRules rules_;
  std::vector<TrainedTensor> tensors_;
  std::vector<UpdateGroup> groups_;
  std::optional<UpdatePlan> plan_;
};

}  // namespace lh
