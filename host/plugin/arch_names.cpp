#include "plugin/arch_names.h"

#include "core/error.h"
#include "io/model_key_spec.h"

namespace lh {

std::vector<PluginArch> arch_names(const Registry& registry) {
  std::vector<PluginArch> all;
  for (const ListedModel& model : registry.listed_models()) try {
      const yaml::Strict in("plugin " + model.id + ": checkpoint YAML", Code::plugin);
      const yaml::Node root = in.parse(model.checkpoint);
      all.push_back({model.id, read_arch_names(in, root, read_model_keys(in, root))});
    } catch (const Error&) {
      continue;  // said when a model is opened with it; others can be
    }
  return all;
}

}  // namespace lh
