// lora-host plugins: what is installed and where it comes from; with --verbose also what it takes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/plugin_flags.h"
#include "core/error.h"
#include "io/checkpoint.h"
#include "plugin/options.h"
#include "plugin/plugin_model.h"
#include "plugin/recipe.h"
#include "plugin/registry.h"
#include "run/usual_rate.h"

namespace lh {
namespace {

std::vector<std::string> words(const char* const* list) {
  std::vector<std::string> all;
  for (; *list != nullptr; ++list) all.emplace_back(*list);
  return all;
}

// A component: its key, and where it lies in single files and in folders of diffusers.
std::string component_line(const ComponentSpec& component) {
  std::vector<std::string> prefixes;
  for (const std::string& prefix : component.prefixes) prefixes.push_back(prefix.empty() ? "no prefix" : prefix);
  return fmt::format("model.{}, keys behind {}{}", component.config_key, fmt::join(prefixes, ", "),
                     component.folder.empty() ? "" : fmt::format("; folder {}", component.folder));
}

// What an input of the denoiser is given: "conditioner.text, rows of conditioner.text_mask", "sizes: height, 0".
std::string input_line(const InputSpec& spec) {
  std::vector<std::string> numbers;
  for (const InputSpec::Number& number : spec.numbers)
    numbers.push_back(number.name.empty() ? fmt::format("{}", number.value) : number.name);
  std::string line = spec.text();
  if (!numbers.empty()) line += fmt::format(": {}", fmt::join(numbers, ", "));
  if (spec.source == InputSpec::Source::constant) line += fmt::format(": {}", spec.value);
  if (!spec.mask.empty()) line += fmt::format(", rows of conditioner.{}", spec.mask);
  if (spec.optional) line += ", where images has it";
  return spec.per_token ? line + ", for each token" : line;
}

// A plugin's recipe may depend on weights; this is the one that it has without any, if it has.
void print_recipe(const Offered<lh_model>& offered, size_t width) try {
  const std::map<std::string, Desc> none;
  const PluginModel model(offered, none);
  const Recipe recipe = Recipe::parse(model.recipe(), offered.descriptor->id);
  fmt::print("    inputs of the denoiser, beside its latents (weights may say otherwise)\n");
  for (const auto& [name, spec] : recipe.inputs) fmt::print("      {:<{}}  {}\n", name, width, input_line(spec));
  fmt::print("    roles: {}\n", fmt::join(model.roles(), ", "));
} catch (const Error& error) {
  if (error.code() == Code::plugin) throw;
}

void print_model(const Offered<lh_model>& offered) {
  const lh_model& model = *offered.descriptor;
  const CheckpointSpec spec = CheckpointSpec::parse(model.checkpoint, model.id);
  size_t width = std::string_view("name_or_path").size();
  for (const ModelKey& key : spec.keys) width = std::max(width, key.name.size());
  for (const ComponentSpec& component : spec.components) width = std::max(width, component.name.size());
  const auto print = [&](const std::string& name, const std::string& text) {
    fmt::print("      {:<{}}  {}\n", name, width, text);
  };
  fmt::print("    files, under model: of a configuration, or --NAME for NAME_path\n");
  print("name_or_path", "(path) The denoiser, and what else is in its file or folder.");
  for (const ModelKey& key : spec.keys)
    if (key.kind == ModelKey::Kind::file) print(key.name, fmt::format("({}) {}", key.value_name(), key.help));
  const auto setting = [](const ModelKey& key) { return key.kind != ModelKey::Kind::file; };
  if (std::ranges::any_of(spec.keys, setting)) fmt::print("    settings, likewise\n");
  for (const ModelKey& key : spec.keys)
    if (setting(key)) print(key.name, fmt::format("({}) {}", key.value_name(), key.help));
  fmt::print("    components\n");
  for (const ComponentSpec& component : spec.components) print(component.name, component_line(component));
  print_recipe(offered, width);
}

void print_options(const lh_option* list, const std::string& owner) {
  const std::vector<std::string> lines = option_lines(read_options(list, owner));
  if (!lines.empty()) fmt::print("    options\n");
  for (const std::string& line : lines) fmt::print("      {}\n", line);
}

// A sampler or schedule.
template <typename Descriptor>
void print_part(const char* kind, const Descriptor& part, bool verbose) {
  fmt::print("  {:<9}  {} ({})\n", kind, part.id, fmt::join(words(part.objectives), ", "));
  if (!verbose) return;
  if (part.aliases != nullptr) fmt::print("    also: {}\n", fmt::join(words(part.aliases), ", "));
  print_options(part.options, fmt::format("{} '{}'", kind, part.id));
}

}  // namespace

int run_plugins(const Options& options) {
  const Registry registry(options.plugin_dirs, {});
  for (const auto& plugin : registry.plugins()) {
    const lh_plugin_entry& entry = plugin->entry();
    fmt::print("{} {}  (ABI {}.{}, {})  {}\n", entry.id, entry.version, entry.abi_major, entry.abi_minor_needed,
               entry.license, plugin->path().string());
    for (const lh_model* model : plugin->models()) {
      fmt::print("  model      {}\n", model->id);
      if (options.verbose) print_model({model, &plugin->host()});
    }
    for (const lh_optimizer* optimizer : plugin->optimizers()) {
      fmt::print("  optimizer  {}\n", optimizer->id);
      if (!options.verbose) continue;
      if (const auto rate = usual_rate(registry, optimizer->id)) fmt::print("    usual lr: {}\n", *rate);
      print_options(optimizer->options, fmt::format("optimizer '{}'", optimizer->id));
    }
    for (const lh_adapter* adapter : plugin->adapters()) {
      fmt::print("  adapter    {}\n", adapter->id);
      if (options.verbose) print_options(adapter->options, fmt::format("adapter '{}'", adapter->id));
    }
    for (const lh_sampler* sampler : plugin->samplers()) print_part("sampler", *sampler, options.verbose);
    for (const lh_schedule* schedule : plugin->schedules()) print_part("schedule", *schedule, options.verbose);
  }
  return 0;
}

}  // namespace lh
