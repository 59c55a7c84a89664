#include "plugin/recipe.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "core/error.h"

namespace lh {

double ResolutionShift::mu(int64_t tokens) const {
  return base + (static_cast<double>(tokens) - base_tokens) * (max - base) / (max_tokens - base_tokens);
}

bool LoraTargets::contain(const std::string& module) const {
  return std::ranges::any_of(patterns_, [&](const std::regex& p) { return std::regex_match(module, p); });
}

namespace {

ResolutionShift parse_shift(const YAML::Node& node) {
  ResolutionShift shift;
  shift.base_tokens = node["base_tokens"].as<double>();
  shift.base = node["base"].as<double>();
  shift.max_tokens = node["max_tokens"].as<double>();
  shift.max = node["max"].as<double>();
  return shift;
}

Recipe parse_node(const YAML::Node& root) {
  Recipe recipe;
  recipe.family = root["family"].as<std::string>();
  recipe.variant = root["variant"].as<std::string>("");
  recipe.objective = root["objective"].as<std::string>();
  recipe.guidance = root["guidance"].as<bool>(false);
  const YAML::Node latents = root["latents"];
  recipe.latents.channels = latents["channels"].as<int64_t>();
  recipe.latents.downscale = latents["downscale"].as<int64_t>();
  recipe.latents.multiple = latents["multiple"].as<int64_t>(1);
  recipe.latents.scale = latents["scale"].as<double>();
  recipe.latents.shift = latents["shift"].as<double>(0);
  for (const auto& item : root["tokenizers"])
    recipe.tokenizers[item.first.as<std::string>()] = {
        item.second["kind"].as<std::string>(), item.second["length"].as<int64_t>(), item.second["pad"].as<int32_t>(),
        item.second["max_length"].as<int64_t>(0), item.second["optional"].as<bool>(false)};
  const YAML::Node timestep = root["timestep"];
  recipe.timestep.type = timestep["type"].as<std::string>();
  recipe.timestep.shift = timestep["shift"].as<double>(1);
  if (timestep["resolution_shift"]) recipe.timestep.resolution_shift = parse_shift(timestep["resolution_shift"]);
  const YAML::Node sampling = root["sampling"];
  recipe.sampling.sampler = sampling["sampler"].as<std::string>();
  recipe.sampling.steps = sampling["steps"].as<int64_t>();
  recipe.sampling.guidance = sampling["guidance"].as<double>(1);
  recipe.sampling.dynamic = sampling["schedule"]["dynamic"].as<bool>(false);
  recipe.sampling.shift = sampling["schedule"]["shift"].as<double>(1);
  for (const YAML::Node& target : root["lora"]["targets"]) recipe.lora_targets.push_back(target.as<std::string>());
  for (const YAML::Node& target : root["lora"]["conv_targets"])
    recipe.lora_conv_targets.push_back(target.as<std::string>());
  for (const auto& item : root["lora"]["text_targets"])
    recipe.lora_text_targets[item.first.as<std::string>()] = item.second.as<std::vector<std::string>>();
  for (const auto& item : root["metadata"])
    recipe.metadata[item.first.as<std::string>()] = item.second.as<std::string>();
  return recipe;
}

}  // namespace

Recipe Recipe::parse(const std::string& yaml, const std::string& plugin) {
  try {
    return parse_node(YAML::Load(yaml));
  } catch (const YAML::Exception& e) {
    fail(Code::plugin, "plugin {}: recipe line {}: {}", plugin, e.mark.line + 1, e.msg);
  }
}

}  // namespace lh
