// lora-host plugins: what is installed and where it comes from.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "plugin/registry.h"

namespace lh {

int run_plugins(const Options& options) {
  const Registry registry(options.plugin_dirs, {});
  for (const auto& plugin : registry.plugins()) {
    const lh_plugin_entry& entry = plugin->entry();
    fmt::print("{} {}  (ABI {}.{}, {})  {}\n", entry.id, entry.version, entry.abi_major, entry.abi_minor_needed,
               entry.license, plugin->path().string());
    for (const lh_model* model : plugin->models()) fmt::print("  model      {}\n", model->id);
    for (const lh_optimizer* optimizer : plugin->optimizers()) fmt::print("  optimizer  {}\n", optimizer->id);
    for (const lh_sampler* sampler : plugin->samplers()) {
      std::vector<std::string> objectives;
      for (const char* const* name = sampler->objectives; *name != nullptr; ++name) objectives.emplace_back(*name);
      fmt::print("  sampler    {} ({})\n", sampler->id, fmt::join(objectives, ", "));
    }
  }
  return 0;
}

}  // namespace lh
