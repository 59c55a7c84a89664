// Trajectories of optimizers against independent implementations: every case of data/golden/optimizers, whose README
// says how they are judged.
#include <gmock/gmock.h>

#include <cmath>

#include "support/device.h"
#include "support/given_options.h"
#include "support/golden.h"
#include "support/model_files.h"
#include "support/optimizer_run.h"
#include "support/paths.h"

namespace lh::test::optimizers_test {
namespace {

namespace fs = std::filesystem;
using golden::Case;

const fs::path cases = fs::path(test_data()) / "golden" / "optimizers";

std::vector<std::string> trajectories() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(cases))
    if (entry.is_directory() && Case(entry.path()).json.at("role") == "optimizer")
      names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

// The options of a case as a user writes them: what belongs to the run, and switches of a package that change nothing
// in the rule, are left out.
GivenOptions options_of(nlohmann::json rule) {
  for (const char* key :
       {"name", "lr", "foreach", "loraplus_lr_ratio", "adamw_lr", "factored_fp32", "split_groups", "split_groups_mean",
        "use_speed", "use_schedulefree", "stochastic_rounding", "weight_decay_by_lr"})
    rule.erase(key);
  if (rule.contains("growth_rate") && rule.at("growth_rate") == "inf") rule["growth_rate"] = nullptr;
  if (rule.contains("dampening") && rule.at("dampening") == 0) rule.erase("dampening");
  return given_options(rule.dump());
}

nlohmann::json rule_of(const Case& c) {
  nlohmann::json rule = c.json.at("optimizer");
  if (rule.at("name") == "adam8bit") rule["min_8bit_size"] = 0;  // the case has no size below which states are 32-bit
  if (rule.contains("adamw_lr"))
    rule["adamw_lr_ratio"] = rule.at("adamw_lr").get<double>() / rule.at("lr").get<double>();
  return rule;
}

// Of a tensor with n elements the floor(share n) that differ most are left out.
double error_without(double share, std::span<const float> got, std::span<const float> want) {
  std::vector<size_t> order(got.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return std::fabs(got[i] - want[i]); });
  std::vector<float> a, b;
  for (size_t i = static_cast<size_t>(share * static_cast<double>(got.size())); i < order.size(); ++i) {
    a.push_back(got[order[i]]);
    b.push_back(want[order[i]]);
  }
  return golden::relative_error(a, b);
}

class Trajectory : public testing::TestWithParam<std::string> {
 protected:
  Trajectory()
      : c_(cases / GetParam()),
        rule_(rule_of(c_)),
        optimizer_(built_plugins(), rule_.at("name"), options_of(rule_)),
        device_(tested_device()) {
    const bool plus = rule_.contains("loraplus_lr_ratio");
    std::vector<RunTensor> tensors;
    for (const auto& [name, spec] : c_.json.at("weights").items())
      tensors.push_back({name, c_.tensor(name, spec), LH_ROLE_OTHER, plus && name.find("lora_up") != name.npos});
    run_ = std::make_unique<OptimizerRun>(device_, std::vector<const Optimizer*>(plus ? 2 : 1, &optimizer_),
                                          std::move(tensors));
    expected_ = c_.expected_names();
  }

  bool expects(const std::string& name) const { return std::ranges::find(expected_, name) != expected_.end(); }

  // An 8-bit case judges tensors whose states are 8-bit by limits of its own.
  bool has_codes(const std::string& tensor) const { return expects("absmax1." + tensor); }

  void compare(const std::string& name, const std::string& tensor, std::span<const float> got) {
    if (!expects(name)) return;
    ++compared_;
    const auto& errors = c_.json.at("fp32_error");
    const std::string any_step = name.substr(0, name.rfind('.')) + ".<k>";
    double limit = std::max(4 * errors.value(name, errors.value(any_step, 0.0)), 2e-6), outliers = 0;
    if (has_codes(tensor)) {
      limit = c_.json.at("limit").at("weights");
      outliers = c_.json.at("limit").value("outliers", 0.0);
    }
    EXPECT_LE(error_without(outliers, got, c_.expected(name).as<float>()), limit) << name;
  }

  HostTensor gradient(int k, const RunTensor& tensor, const HostTensor& w) const {
    const auto input = [&](const std::string& key) { return c_.tensor(key, c_.json.at("inputs").at(key)); };
    HostTensor g = input(fmt::format("grad.{}.{}", k, tensor.name));
    if (!c_.json.at("inputs").contains("curvature." + tensor.name)) return g;
    const HostTensor curvature = input("curvature." + tensor.name), target = input("target." + tensor.name);
    for (size_t i = 0; i < g.as<float>().size(); ++i)
      g.as<float>()[i] =
          static_cast<float>(static_cast<double>(g.as<float>()[i]) +
                             static_cast<double>(curvature.as<float>()[i]) *
                                 (static_cast<double>(w.as<float>()[i]) - static_cast<double>(target.as<float>()[i])));
    return g;
  }

  std::vector<float> rates(int k) const {
    const auto& lr = rule_.at("lr");
    const double base = c_.json.contains("lr_per_step")
                            ? c_.json.at("lr_per_step").at(static_cast<size_t>(k)).get<double>()
                        : lr.is_null() ? 0.0
                                       : lr.get<double>();
    return {static_cast<float>(base), static_cast<float>(base * rule_.value("loraplus_lr_ratio", 1.0))};
  }

  // Codes and the factors of their blocks, after the last step.
  void compare_codes() {
    for (const std::string& name : expected_) {
      const bool first = name.starts_with("state1.");
      if (!first && !name.starts_with("state2.")) continue;
      const std::string tensor = name.substr(7), state = first ? "m" : "v";
      ++compared_;
      const HostTensor want = c_.expected(name);
      if (!has_codes(tensor)) {
        EXPECT_LE(golden::relative_error(run_->state(state + "/" + tensor).as<float>(), want.as<float>()), 2e-6)
            << name;
        continue;
      }
      const HostTensor got = run_->state(state + "/" + tensor);
      const std::span<const uint8_t> codes = want.as<uint8_t>();
      ASSERT_EQ(got.desc.bytes(), want.desc.bytes()) << name;
      size_t differ = 0;
      for (size_t i = 0; i < codes.size(); ++i) differ += got.as<uint8_t>()[i] != codes[i];
      EXPECT_LE(static_cast<double>(differ),
                c_.json.at("limit").at("codes").get<double>() * static_cast<double>(codes.size()))
          << name;
      const std::string factors = fmt::format("absmax{}.{}", first ? 1 : 2, tensor);
      EXPECT_LE(golden::relative_error(run_->state(state + ".absmax/" + tensor).as<float>(),
                                       c_.expected(factors).as<float>()),
                1e-2)
          << factors;
    }
  }

  Case c_;
  nlohmann::json rule_;
  Optimizer optimizer_;
  Device device_;
  std::unique_ptr<OptimizerRun> run_;
  std::vector<std::string> expected_;
  int64_t compared_ = 0;
};

TEST_P(Trajectory, IsFollowed) {
  const int steps = c_.json.at("steps");
  const std::vector<RunTensor>& tensors = run_->tensors();
  std::vector<float> d;
  for (int k = 0;; ++k) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const HostTensor p = run_->p(i);
      compare(fmt::format("{}.{}", tensors[i].name, k), tensors[i].name, p.as<float>());
      if (const std::string name = fmt::format("eval.{}.{}", tensors[i].name, k); expects(name))
        compare(name, tensors[i].name, run_->evaluated(i).as<float>());
      if (k < steps) run_->set_gradient(i, gradient(k, tensors[i], p));
    }
    if (k == steps) break;
    std::vector<float> lr = rates(k);
    lr.resize(run_->plan().groups().size());
    run_->step(lr);
    if (run_->has_state("d/group0")) d.push_back(run_->state("d/group0").as<float>()[0]);
  }
  if (expects("step_size")) compare("step_size", "", d);
  compare_codes();
  EXPECT_GE(compared_, 8);
}

INSTANTIATE_TEST_SUITE_P(Golden, Trajectory, testing::ValuesIn(trajectories()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lh::test::optimizers_test
