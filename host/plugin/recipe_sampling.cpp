// The parts of a recipe that say how a model is trained and sampled: noise schedule, timestep law, sampling.
#include <fmt/core.h>

#include "plugin/recipe_parts.h"

namespace lh {
namespace {

using yaml::Strict;

constexpr double many = 1LL << 31;
constexpr Range shifts{.low = 0, .high = 100, .above = true};

ResolutionShift read_resolution_shift(const Strict& in, const yaml::Node& node) {
  const std::string where = "resolution_shift";
  in.check_fields(node, where, {"base_tokens", "base", "max_tokens", "max", "growth", "capped"});
  const auto number = [&](std::string_view field, const Range& range) {
    return in.number(in.need(node, field, where), std::string(field), range);
  };
  ResolutionShift out;
  if (const yaml::Node* growth = node.find("growth"))
    out.logarithmic = in.choice(*growth, "growth", {"linear", "logarithmic"}) == "logarithmic";
  out.base_tokens = number("base_tokens", {.low = out.logarithmic ? 1.0 : 0.0, .high = many});
  out.base = number("base", {.low = -100, .high = 100});
  out.max_tokens = number("max_tokens", {.low = out.base_tokens + 1, .high = many});
  out.max = number("max", {.low = -100, .high = 100});
  in.set(node, "capped", out.capped);
  return out;
}

ScheduleSpec read_flow_schedule(const Strict& in, const yaml::Node& node, const Recipe& recipe) {
  in.check_fields(node, "a flow schedule", {"kind", "timesteps", "dynamic", "shift", "shift_twice"});
  ScheduleSpec out;
  in.set(node, "timesteps", out.timesteps, {.low = 2, .high = 1e6});
  in.set(node, "dynamic", out.dynamic);
  in.set(node, "shift", out.shift, shifts);
  in.set(node, "shift_twice", out.shift_twice);
  if (out.dynamic && !recipe.timestep.resolution_shift)
    in.wrong(*node.find("dynamic"), "dynamic: true needs timestep.resolution_shift");
  if (out.dynamic && out.shift_twice) in.wrong(*node.find("shift_twice"), "shift_twice does not go with dynamic: true");
  return out;
}

ScheduleSpec read_discrete_schedule(const Strict& in, const yaml::Node& node, const Recipe& recipe) {
  in.check_fields(node, "a discrete schedule", {"kind", "spacing", "offset", "set_alpha_to_one"});
  const std::string spacing = in.choice(in.need(node, "spacing", "schedule"), "spacing", {"leading", "trailing"});
  ScheduleSpec out;
  out.spacing = spacing == "leading" ? ScheduleSpec::Spacing::leading : ScheduleSpec::Spacing::trailing;
  in.set(node, "offset", out.offset, {.low = 0, .high = static_cast<double>(recipe.noise_schedule.steps - 1)});
  if (out.offset != 0 && spacing == "trailing") in.wrong(*node.find("offset"), "offset belongs to leading spacing");
  in.set(node, "set_alpha_to_one", out.set_alpha_to_one);
  return out;
}

ScheduleSpec read_schedule(const Strict& in, const yaml::Node& node, const Recipe& recipe) {
  (void)in.entries(node, "schedule");
  const bool flow = recipe.objective == Objective::flow;
  const yaml::Node& kind = in.need(node, "kind", "schedule");
  const std::string name = in.choice(kind, "schedule kind", {"flow", "discrete"});
  if ((name == "flow") != flow)
    in.wrong(kind, fmt::format("schedule kind {} does not fit objective {}", name, objective_name(recipe.objective)));
  return flow ? read_flow_schedule(in, node, recipe) : read_discrete_schedule(in, node, recipe);
}

SkipLayerGuidance read_skip_layer_guidance(const Strict& in, const yaml::Node& node) {
  const std::string where = "skip_layer_guidance";
  in.check_fields(node, where, {"layers", "scale", "start", "end"});
  SkipLayerGuidance out;
  const yaml::Node& layers = in.need(node, "layers", where);
  out.layers = in.integers(layers, "layers", {.low = 0});
  if (out.layers.empty()) in.wrong(layers, "layers must be a list of block numbers, found an empty one");
  out.scale = in.number(in.need(node, "scale", where), "scale", {.low = 0, .high = 100});
  in.set(node, "start", out.start, {.low = 0, .high = 1});
  in.set(node, "end", out.end, {.low = out.start, .high = 1});
  return out;
}

// Options of a sampler or schedule, which are checked when the plugin that has it is known.
void set_options(const Strict& in, const yaml::Node& node, const std::string& field, GivenOptions& out) {
  const yaml::Node* given = node.find(field);
  if (given == nullptr) return;
  for (const auto& [name, value] : in.entries(*given, field))
    out[name.text] = {.value = value, .key = name.place, .source = in.source()};
}

}  // namespace

NoiseSpec read_noise(const Strict& in, const yaml::Node& node) {
  in.check_fields(node, "noise", {"scale", "clip"});
  NoiseSpec out;
  in.set(node, "scale", out.scale, {.low = 0, .high = 1000, .above = true});
  in.set(node, "clip", out.clip, {.low = 0, .high = 100, .above = true});
  return out;
}

NoiseScheduleSpec read_noise_schedule(const Strict& in, const yaml::Node& node, Objective objective) {
  const std::string where = "noise_schedule";
  in.check_fields(node, where, {"kind", "beta_start", "beta_end", "steps", "zero_terminal_snr"});
  NoiseScheduleSpec out;
  out.kind = in.choice(in.need(node, "kind", where), "noise_schedule kind", {"scaled_linear", "linear"});
  out.beta_start =
      in.number(in.need(node, "beta_start", where), "beta_start", {.low = 0, .high = 1, .above = true, .below = true});
  out.beta_end =
      in.number(in.need(node, "beta_end", where), "beta_end", {.low = out.beta_start, .high = 1, .below = true});
  in.set(node, "steps", out.steps, {.low = 2, .high = 1e6});
  in.set(node, "zero_terminal_snr", out.zero_terminal_snr);
  if (out.zero_terminal_snr && objective == Objective::epsilon)
    in.wrong(*node.find("zero_terminal_snr"),
             "zero_terminal_snr needs objective v_prediction: where nothing but noise is left, the noise says nothing "
             "about the image");
  return out;
}

TimestepSpec read_timestep(const Strict& in, const yaml::Node& node, Objective objective) {
  in.check_fields(node, "timestep", {"type", "shift", "scale", "weighting", "resolution_shift", "stretch", "even"});
  TimestepSpec out;
  out.type = in.choice(in.need(node, "type", "timestep"), "timestep type",
                       {"uniform", "linear", "sigmoid", "logit_normal", "mode", "cosmap", "shift", "resolution_shift"});
  in.set(node, "shift", out.shift, shifts);
  if (const yaml::Node* scale = node.find("scale")) {
    if (out.type != "sigmoid" && out.type != "shift" && out.type != "resolution_shift")
      in.wrong(*scale, "scale belongs to the types sigmoid, shift and resolution_shift");
    in.set(node, "scale", out.scale, shifts);
  }
  if (const yaml::Node* weighting = node.find("weighting"))
    out.weighting = in.choice(*weighting, "timestep weighting", {"none", "sigma_sqrt", "cosmap"});
  if (const yaml::Node* shift = node.find("resolution_shift")) out.resolution_shift = read_resolution_shift(in, *shift);
  if (objective != Objective::flow && (out.weighting != "none" || out.resolution_shift))
    in.wrong(node, "weighting and resolution_shift belong to flow models");
  if (out.type == "resolution_shift" && !out.resolution_shift)
    in.wrong(node, "type resolution_shift needs the field `resolution_shift`");
  if (const yaml::Node* stretch = node.find("stretch")) {
    std::vector<double> ranks;
    for (const yaml::Node& item : in.list(*stretch, "stretch"))
      ranks.push_back(in.number(item, "a rank of stretch", {.low = 0, .high = 1, .above = true}));
    if (ranks.size() != 2 || ranks[0] >= ranks[1] || ranks[1] >= 1)
      in.wrong(*stretch, "stretch must be [low, high]: two ranks above 0 and below 1");
    out.stretch = {ranks[0], ranks[1]};
  }
  in.set(node, "even", out.even, {.low = 0, .high = 1});
  if (out.type != "resolution_shift" && (out.stretch || out.even > 0))
    in.wrong(node, "stretch and even belong to the type resolution_shift");
  return out;
}

SamplingSpec read_sampling(const Strict& in, const yaml::Node& node, const Recipe& recipe) {
  in.check_fields(node, "sampling",
                  {"sampler", "sampler_params", "scheduler", "scheduler_params", "steps", "guidance", "schedule",
                   "renorm_cfg", "cfg_trunc_ratio", "skip_layer_guidance"});
  SamplingSpec out;
  out.sampler = in.text(in.need(node, "sampler", "sampling"), "sampler");
  in.set(node, "scheduler", out.scheduler);
  set_options(in, node, "sampler_params", out.sampler_params);
  set_options(in, node, "scheduler_params", out.scheduler_params);
  out.steps = in.integer(in.need(node, "steps", "sampling"), "steps", {.low = 1, .high = 1000});
  in.set(node, "guidance", out.guidance, {.low = 0, .high = 100});
  in.set(node, "renorm_cfg", out.renorm_cfg, {.low = 0, .high = 100});
  in.set(node, "cfg_trunc_ratio", out.cfg_trunc_ratio, {.low = 0, .high = 100});
  out.schedule = read_schedule(in, in.need(node, "schedule", "sampling"), recipe);
  if (const yaml::Node* skip = node.find("skip_layer_guidance")) {
    if (recipe.guided()) in.wrong(*skip, "skip_layer_guidance does not go with an input that is given the guidance");
    out.skip_layer_guidance = read_skip_layer_guidance(in, *skip);
  }
  return out;
}

}  // namespace lh
