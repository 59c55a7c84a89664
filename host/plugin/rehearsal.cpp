// Creates each part with its default options and lets it answer for something small.
#include "plugin/rehearsal.h"

#include <vector>

#include "core/error.h"
#include "plugin/adapter.h"
#include "plugin/optimizer.h"
#include "plugin/sampler.h"
#include "plugin/schedule.h"

namespace lh {
namespace {

template <typename Body>
void attempt(const Body& body) {
  try {
    body();
  } catch (const Error&) {  // it can be told; so it is, where the part is used
    return;
  }
}

void rehearse_optimizer(const Offered<lh_optimizer>& offered) {
  const Optimizer rule(offered, {});
  const Parameter matrix{
      .name = "layer.lora_down.weight", .module = "layer", .role = LH_ROLE_DOWN, .rank = 4, .shape = {4, 8}};
  (void)rule.states(matrix);
  std::vector<std::string> known;
  for (uint32_t pass = 0; pass < rule.passes(); ++pass) {
    (void)rule.build_pass(pass, matrix, known);
    if (pass + 1 < rule.passes()) (void)rule.build_between(pass, matrix, known);
  }
  (void)rule.build_evaluation(matrix);
}

void rehearse_adapter(const Offered<lh_adapter>& offered) {
  const Adapter rule(offered, {});
  const AdapterLayer layer{.module = "layer", .weight = {16, 16}, .rank = 2, .alpha = 2};
  const AdapterForm form = rule.form(layer);
  if (form.kind == AdapterForm::Kind::none) return;
  Graph graph(DType::f32);
  AdapterRule::Values given;
  const auto add = [&](const std::string& name, const Shape& shape) {
    given[name] = graph.add_input(name, {DType::f32, shape});
  };
  for (const AdapterTensorSpec& tensor : rule.tensors(layer)) add(tensor.key, tensor.shape);
  if (form.kind == AdapterForm::Kind::weight) add("weight", layer.weight);
  if (form.kind == AdapterForm::Kind::output)
    for (const char* name : {"x", "y"}) add(name, {1, 16});
  graph.inputs.clear();  // what the adapter asks for besides stands alone
  if (form.kind == AdapterForm::Kind::weight) (void)rule.build_weight(graph, layer, given, 0);
  if (form.kind == AdapterForm::Kind::output) (void)rule.build_output(graph, layer, given, 0);
}

// Levels of a run of two steps.
struct FewLevels {
  std::vector<double> alpha{0.5, 0.75, 1}, sigma{0.5, 0.25, 0}, time{500, 250, 0};
  lh_levels of(const char* objective, int32_t space) const {
    return {.struct_size = sizeof(lh_levels),
            .steps = 2,
            .alpha = alpha.data(),
            .sigma = sigma.data(),
            .time = time.data(),
            .objective = objective,
            .space = space};
  }
};

void rehearse_sampler(const Offered<lh_sampler>& offered) {
  const Sampler sampler(offered, {});
  const FewLevels few;
  const lh_levels levels = few.of(offered.descriptor->objectives[0], sampler.space());
  for (uint32_t stage = 0; stage < sampler.stages(); ++stage) {
    (void)sampler.build(stage, {1, 4, 4, 4});
    (void)sampler.scalar_values(levels, 0, stage);
  }
}

void rehearse_schedule(const Offered<lh_schedule>& offered) {
  const Schedule schedule(offered, {});
  std::vector<double> trained(1000);
  for (size_t i = 0; i < trained.size(); ++i) trained[i] = static_cast<double>(i + 1) / 1001;
  lh_schedule_facts facts{};
  facts.struct_size = sizeof facts;
  facts.steps = 4;
  facts.objective = offered.descriptor->objectives[0];
  facts.space = LH_SPACE_SIGMA;
  facts.timesteps = static_cast<uint32_t>(trained.size());
  facts.trained_sigma = trained.data();
  facts.sigma_min = trained.front();
  facts.sigma_max = trained.back();
  facts.tokens = 16;
  facts.shift = 1;
  (void)schedule.levels(facts);
}

}  // namespace

void rehearse(const Plugin& plugin) {
  const PluginHost* host = &plugin.host();
  for (const lh_optimizer* part : plugin.optimizers()) attempt([&] { rehearse_optimizer({part, host}); });
  for (const lh_adapter* part : plugin.adapters()) attempt([&] { rehearse_adapter({part, host}); });
  for (const lh_sampler* part : plugin.samplers()) attempt([&] { rehearse_sampler({part, host}); });
  for (const lh_schedule* part : plugin.schedules()) attempt([&] { rehearse_schedule({part, host}); });
}

}  // namespace lh
