#include "encode/try_model.h"

#include <sys/stat.h>

#include "core/apart.h"
#include "core/hash.h"
#include "encode/check_model.h"
#include "plugin/model.h"
#include "plugin/trial.h"

namespace lh {
namespace {

constexpr double time_limit = 300;  // seconds; a large checkpoint on a slow disk takes some

// What a file is, without reading it: where it lies, its size and when it was changed.
std::string place_of(const std::filesystem::path& path) {
  struct stat info {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return path.string();
  return fmt::format("{} {} {}.{}", path.string(), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

std::string identity(const Registry& registry, const ModelConfig& config, const std::string& plugin, DType compute,
                     const std::set<std::string>& images) {
  Sha256 hash;
  hash.update(fmt::format("{};{};{};{};{}", LORA_HOST_VERSION, plugin, dtype_name(compute), config.dtype,
                          place_of(config.name_or_path)));
  for (const PluginFile& file : registry.plugins())
    if (!file.offers().models.empty()) hash.update(fmt::format(";{}", content_hash(file.path())));
  for (const auto& [key, given] : config.given)
    hash.update(fmt::format(";{}={} {}", key, given.text, place_of(given.text)));
  if (config.with_sound) hash.update(";with sound");
  for (const std::string& key : images) hash.update(fmt::format(";image {}", key));
  return hash.hex() + " model";
}

}  // namespace

void try_model(const Registry& registry, const ModelConfig& config, const std::string& plugin, DType compute,
               const std::set<std::string>& images) {
  const std::string line = identity(registry, config, plugin, compute, images);
  if (was_tried(line)) return;
  run_apart("the plugin of the model", time_limit, [&] {
    const Model model(registry, config, plugin, images);
    check_model(model, compute);
    return std::string();
  });
  remember_tried(line);
}

}  // namespace lh
