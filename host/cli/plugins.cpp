// lora-host plugins: what is installed and where it comes from; with --verbose also what it takes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/plugin_flags.h"
#include "io/checkpoint.h"
#include "plugin/registry.h"

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

void print_model(const lh_model& model) {
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
      if (options.verbose) print_model(*model);
    }
    for (const lh_optimizer* optimizer : plugin->optimizers()) {
      fmt::print("  optimizer  {}\n", optimizer->id);
      if (options.verbose) fmt::print("    options: {}\n", fmt::join(words(optimizer->options), ", "));
    }
    for (const lh_sampler* sampler : plugin->samplers())
      fmt::print("  sampler    {} ({})\n", sampler->id, fmt::join(words(sampler->objectives), ", "));
  }
  return 0;
}

}  // namespace lh
