// Golden trajectories of samplers and tables of schedules, run through the code that `sample` uses.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "diffusion/sampler.h"
#include "diffusion/sampler_choice.h"
#include "support/golden.h"

namespace lh::golden {

using Floats = std::map<std::string, std::vector<float>>;

// Runs a case of role sampler; gives everything that a case may expect, by the name it expects it under. A case has a
// `scheduler` of diffusers, whose levels follow from its options, or a `sampler` of k-diffusion or ComfyUI over levels
// that are given.
Floats trajectory(const Case& c, Device& device);

// Cases of a folder: those of the repository and, where LORA_GOLDEN names folders (separated by colons), theirs.
std::vector<std::filesystem::path> entries_of(const std::string& folder);

// Options as a configuration has them, made of JSON.
GivenOptions options_of(const nlohmann::json& values);

// The levels of a schedule, by id and options, for a model's recipe: sigma / alpha, or sigma of flow models.
struct Spacing {
  std::string id;
  nlohmann::json options = nlohmann::json::object();
  int32_t space = LH_SPACE_SIGMA;
  int64_t steps = 1, tokens = 1;
};
LevelList levels_of(const Recipe& recipe, const Spacing& spacing);

// A recipe of an objective and a spacing, and what its model's own schedule gives.
Recipe recipe_of(Objective objective, ScheduleSpec::Spacing spacing);
SamplingSchedule own_schedule(const Recipe& recipe, int32_t space, int64_t steps);

}  // namespace lh::golden
