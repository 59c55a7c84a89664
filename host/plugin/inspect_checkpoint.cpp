// Opens what a plugin takes and lists components, types and what is missing.
#include "plugin/inspect_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "plugin/recipe.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

std::string layout_of(const ComponentSpec& denoiser, const fs::path& path) {
  if (fs::is_directory(path)) return "folder of diffusers";
  const FilePtr file = open_weight_file(path);
  for (const std::string& prefix : denoiser.prefixes) {
    if (file->find(prefix + denoiser.marker) == nullptr) continue;
    return "single file, original names" + (prefix.empty() ? std::string() : " behind " + prefix);
  }
  return "single file, names of diffusers";
}

// Adds up the weights whose names begin with `prefix`; an empty one stands for those of the denoiser.
void add_up(const Checkpoint& checkpoint, const std::string& prefix, ComponentReport& report) {
  for (const auto& [name, desc] : checkpoint.weights()) {
    if (prefix.empty() ? name.find(':') != std::string::npos : !name.starts_with(prefix)) continue;
    report.found = true;
    ++report.tensors;
    ++report.dtypes[std::string(checkpoint.stored_type(name))];
    report.parameters = checked_add(report.parameters, desc.shape.numel());
    if (!is_fp8(desc.dtype)) continue;
    const auto form = checkpoint.stored_fp8(name);
    if (form && form->factors > 0)
      report.fp8 = "scaled";
    else if (report.fp8.empty())
      report.fp8 = "plain";
  }
}

std::string line_of(const ComponentReport& c, size_t width) {
  std::string line = fmt::format("    {:<{}}  ", c.name, width);
  if (!c.found)
    return line + fmt::format("not in it: model.{}{}\n", c.config_key, c.optional ? " (the model works without)" : "");
  std::string dtypes;
  for (const auto& [dtype, count] : c.dtypes)
    dtypes += fmt::format("{}{} {}", dtypes.empty() ? "" : ", ", count, dtype);
  line += fmt::format("{} tensors ({}), {} parameters", c.tensors, dtypes, c.parameters);
  return line + (c.fp8.empty() ? "\n" : fmt::format(", {} fp8\n", c.fp8));
}

}  // namespace

CheckpointReport inspect_checkpoint(const Registry& registry, const fs::path& path) {
  CheckpointReport report;
  const std::vector<Opinion> opinions = ask_plugins(registry, path);
  if (opinions.empty() || opinions[0].confidence <= 0) {
    for (const Opinion& opinion : opinions) {
      if (!opinion.words.empty()) report.words[opinion.id()] = opinion.words;
      if (opinion.mistake) report.words[opinion.id()] = opinion.mistake->what();
    }
    report.parts = parts_at(registry, path);
    return report;
  }
  const Opinion& surest = opinions[0];
  report.plugin = surest.id();
  report.layout = layout_of(*surest.spec.component("denoiser"), path);
  std::map<std::string, TokenizerSpec> tokenizers;
  try {
    const Checkpoint checkpoint(surest.spec, {{"name_or_path", path}});
    for (const ComponentSpec& component : surest.spec.components) {
      ComponentReport& part = report.components.emplace_back();
      part.name = component.name;
      part.config_key = component.config_key;
      part.optional = component.optional;
      add_up(checkpoint, component.name == "denoiser" ? "" : component.name + ":", part);
    }
    const PluginModel model(surest.model.load(), checkpoint.weights(), &checkpoint.documents());
    const Recipe recipe = Recipe::parse(model.recipe(), report.plugin);
    report.family = recipe.family;
    report.variant = recipe.variant;
    report.objective = objective_name(recipe.objective);
    if (recipe.latents.pixels)  // which nobody decodes
      std::erase_if(report.components, [](const ComponentReport& part) { return part.name == "vae" && !part.found; });
    for (ComponentReport& part : report.components)
      if (const auto encoder = recipe.tokenizers.find(part.name); encoder != recipe.tokenizers.end())
        part.optional = encoder->second.optional;
  } catch (const Error& e) {
    if (e.code() != Code::data) throw;
    report.problem = e.what();
  }
  return report;
}

std::string report_text(const CheckpointReport& report) {
  std::string out;
  if (report.plugin.empty()) {
    for (const auto& [plugin, words] : report.words) out += fmt::format("  {}: {}\n", plugin, words);
    bool shared = false;
    for (const FoundComponent& part : report.parts) {
      shared |= part.plugins.size() > 1;
      out += fmt::format("  fits component {} of {}: model.{}\n", part.component, fmt::join(part.plugins, ", "),
                         part.config_key);
    }
    if (shared) out += "  where several models have the same tensors, the file does not say whose it is\n";
    return out.empty() ? "  no model plugin knows it\n" : out;
  }
  out = fmt::format("  model of plugin {}: {}\n", report.plugin, report.layout);
  if (!report.family.empty())
    out += fmt::format("    family {}, variant {}, objective {}\n", report.family,
                       report.variant.empty() ? "(none)" : report.variant, report.objective);
  size_t width = 0;
  for (const ComponentReport& c : report.components) width = std::max(width, c.name.size());
  for (const ComponentReport& c : report.components) out += line_of(c, width);
  if (!report.problem.empty()) out += fmt::format("    cannot be opened: {}\n", report.problem);
  return out;
}

nlohmann::json report_json(const CheckpointReport& report) {
  nlohmann::json json{{"plugin", report.plugin},        {"layout", report.layout},
                      {"family", report.family},        {"variant", report.variant},
                      {"objective", report.objective},  {"problem", report.problem},
                      {"other_plugins", report.words},  {"components", nlohmann::json::array()},
                      {"fits", nlohmann::json::array()}};
  for (const ComponentReport& c : report.components)
    json["components"].push_back({{"name", c.name},
                                  {"config", "model." + c.config_key},
                                  {"found", c.found},
                                  {"optional", c.optional},
                                  {"tensors", c.tensors},
                                  {"parameters", c.parameters},
                                  {"dtypes", c.dtypes},
                                  {"fp8", c.fp8}});
  for (const FoundComponent& part : report.parts)
    json["fits"].push_back(
        {{"component", part.component}, {"config", "model." + part.config_key}, {"plugins", part.plugins}});
  return json;
}

}  // namespace lh
