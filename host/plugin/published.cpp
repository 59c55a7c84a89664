#include "plugin/published.h"

#include "core/error.h"

namespace lh {

Published published_models(const Registry& registry) {
  Published all;
  for (const ListedModel& model : registry.listed_models()) try {
      const yaml::Strict in("plugin " + model.id + ": checkpoint YAML", Code::plugin);
      all.merge(read_published(in, in.parse(model.checkpoint)));
    } catch (const Error&) {
      continue;  // said when a model is opened with it; others can be
    }
  return all;
}

void require_model_path(const Registry& registry, const std::filesystem::path& path) {
  if (!path.empty() && !std::filesystem::exists(path))
    fail(Code::data, "model.name_or_path: {}: no such file or directory{}", path.string(),
         repository_hint(path, published_models(registry)));
}

}  // namespace lh
