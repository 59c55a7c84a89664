#include "run/groups.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "config/module_numbers.h"
#include "config/value.h"
#include "core/error.h"
#include "passes/adapt.h"

namespace lh {
namespace {

constexpr std::pair<const char*, int32_t> roles[] = {
    {"down", LH_ROLE_DOWN}, {"up", LH_ROLE_UP}, {"weight", LH_ROLE_WEIGHT}, {"other", LH_ROLE_OTHER}};

std::string role_name(int32_t role) {
  for (const auto& [name, number] : roles)
    if (number == role) return name;
  fail(Code::internal, "a trained tensor has the role {}", role);
}

bool asks_by_role(const TrainSection& train) {
  return train.loraplus_lr_ratio != 1 || !train.role_weight_decay.empty();
}

// What the updates follow from, as text.
std::string asked(const TrainSection& train) {
  TrainSection copy = train;
  return fmt::format("{} {} {} {} {}", train.optimizer, schema::print_value(&copy.optimizer_params),
                     schema::print_value(&copy.role_weight_decay), schema::print_value(&copy.module_lr_ratio),
                     asks_by_role(train));
}

// Of text encoder number `index` of `count`.
double text_encoder_lr(const TrainSection& train, size_t index, size_t count) {
  const std::vector<double>& given = train.text_encoder_lr;
  if (given.empty()) return train.learning_rate();
  if (given.size() != 1 && given.size() != count)
    fail(Code::config, "train.text_encoder_lr: expected one number or {}, one for each text encoder, found {}", count,
         given.size());
  return given[given.size() == 1 ? 0 : index];
}

}  // namespace

OptimizerRules::OptimizerRules(const Registry& registry, const TrainSection& train)
    : base_(std::make_unique<Optimizer>(registry, train.optimizer, train.optimizer_params)),
      by_role_(asks_by_role(train)) {
  for (const auto& [name, decay] : train.role_weight_decay) {
    GivenOptions options = train.optimizer_params;
    options["weight_decay"] = {.value = {.kind = yaml::Kind::scalar, .text = fmt::format("{}", decay)}, .key = {}};
    const auto role = std::ranges::find(roles, name, [](const auto& row) { return std::string(row.first); });
    own_[role->second] = std::make_unique<Optimizer>(registry, train.optimizer, options);
  }
}

const Optimizer& OptimizerRules::of(int32_t role) const {
  const auto found = own_.find(role);
  return found == own_.end() ? *base_ : *found->second;
}

ParameterGroups::ParameterGroups(const OptimizerRules& rules, const TrainSection& train,
                                 std::vector<TrainedTensor>& tensors) {
  std::set<std::string> encoders;
  for (const TrainedTensor& tensor : tensors)
    if (const std::string component = component_of(tensor.parameter.name); !component.empty())
      encoders.insert(component);
  const ModuleNumbers ratios("train.module_lr_ratio", train.module_lr_ratio);
  std::vector<std::string> modules;
  for (const TrainedTensor& tensor : tensors) modules.push_back(tensor.parameter.module);
  ratios.require_use(modules);
  std::map<std::tuple<std::string, int32_t, double>, uint32_t> known;
  for (TrainedTensor& tensor : tensors) {
    const std::string component = component_of(tensor.parameter.name);
    const int32_t role = rules.by_role() ? tensor.parameter.role : LH_ROLE_OTHER;
    const double ratio = ratios.of(tensor.parameter.module).value_or(1);
    const auto [found, fresh] = known.try_emplace({component, role, ratio}, static_cast<uint32_t>(groups.size()));
    tensor.parameter.group = found->second;
    if (!fresh) continue;
    std::string name = component.empty() ? "denoiser" : component;
    if (rules.by_role()) (name += ".") += role_name(role);
    if (ratio != 1) name += fmt::format(".lr_{}", ratio);
    groups.push_back({name, &rules.of(tensor.parameter.role)});
    const auto place = static_cast<size_t>(std::distance(encoders.begin(), encoders.find(component)));
    const double rate =
        ratio * (component.empty() ? train.learning_rate() : text_encoder_lr(train, place, encoders.size()));
    lr.push_back(tensor.parameter.role == LH_ROLE_UP ? rate * train.loraplus_lr_ratio : rate);
  }
}

OptimizerSetup::OptimizerSetup(const Registry& registry, const TrainSection& train,
                               const std::vector<TrainedTensor>& tensors, StatePlace place)
    : asked_(asked(train)), rules_(registry, train), tensors_(tensors) {
  std::vector<TrainedTensor> grouped = tensors;
  groups_ = ParameterGroups(rules_, train, grouped).groups;
  plan_.emplace(groups_, std::move(grouped), place);
}

UpdatePlan OptimizerSetup::plan_at(StatePlace place) const { return {groups_, plan_->tensors(), place}; }

bool OptimizerSetup::serves(const TrainSection& train) const { return asked(train) == asked_; }

std::vector<double> OptimizerSetup::rates(const TrainSection& train) const {
  std::vector<TrainedTensor> tensors = tensors_;
  return ParameterGroups(rules_, train, tensors).lr;
}

}  // namespace lh
