// Reading the parts of a recipe: the denoiser's inputs, and how a model is trained and sampled.
#pragma once

#include <map>
#include <string>

#include "config/strict.h"
#include "plugin/recipe.h"

namespace lh {

std::map<std::string, InputSpec> read_inputs(const yaml::Strict& in, const yaml::Node& node);

// tokenizers: of the recipe; that of a picture's encoder, if it has one, says where the picture's places are.
std::map<std::string, PictureSpec> read_pictures(const yaml::Strict& in, const yaml::Node& node,
                                                 const std::map<std::string, TokenizerSpec>& tokenizers);

NoiseSpec read_noise(const yaml::Strict& in, const yaml::Node& node);
NoiseScheduleSpec read_noise_schedule(const yaml::Strict& in, const yaml::Node& node, Objective objective);
TimestepSpec read_timestep(const yaml::Strict& in, const yaml::Node& node, Objective objective);
// recipe: what has been read of it, without the sampling.
SamplingSpec read_sampling(const yaml::Strict& in, const yaml::Node& node, const Recipe& recipe);

}  // namespace lh
