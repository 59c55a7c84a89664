#include "plugin/registry.h"

#include "core/error.h"
#include "io/checkpoint.h"

namespace lh {

Registry::Registry(const std::vector<std::filesystem::path>& directories, const std::vector<std::string>& asked_for)
    : plugins_(load_plugins(
          plugin_directories(directories), host_api(),
          [this](const std::string& path) {
            hosts_.push_back(std::make_unique<lh_host>());
            hosts_.back()->plugin = std::filesystem::path(path).stem();
            return hosts_.back().get();
          },
          asked_for)) {}

std::vector<Offered<lh_model>> Registry::models() const {
  std::vector<Offered<lh_model>> all;
  for (const auto& plugin : plugins_)
    for (const lh_model* model : plugin->models()) all.push_back({model, plugin->host()});
  return all;
}

std::vector<Offered<lh_sampler>> Registry::samplers() const {
  std::vector<Offered<lh_sampler>> all;
  for (const auto& plugin : plugins_)
    for (const lh_sampler* sampler : plugin->samplers()) all.push_back({sampler, plugin->host()});
  return all;
}

std::vector<PluginKeys> Registry::model_keys() const {
  std::vector<PluginKeys> all;
  for (const auto& [model, host] : models())
    all.push_back({model->id, CheckpointSpec::parse(model->checkpoint, model->id).keys});
  return all;
}

namespace {

template <typename Descriptor, typename List>
Offered<Descriptor> find_by_id(const Plugins& plugins, List list, const std::string& kind, const std::string& id) {
  std::string known;
  for (const auto& plugin : plugins)
    for (const Descriptor* d : ((*plugin).*list)()) {
      if (id == d->id) return {d, plugin->host()};
      known += (known.empty() ? "" : ", ") + std::string(d->id);
    }
  fail(Code::config, "{} '{}' is in no plugin. Known: {}", kind, id, known.empty() ? "none" : known);
}

}  // namespace

Offered<lh_optimizer> Registry::optimizer(const std::string& id) const {
  return find_by_id<lh_optimizer>(plugins_, &Plugin::optimizers, "optimizer", id);
}

Offered<lh_sampler> Registry::sampler(const std::string& id) const {
  return find_by_id<lh_sampler>(plugins_, &Plugin::samplers, "sampler", id);
}

}  // namespace lh
