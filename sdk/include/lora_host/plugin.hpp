// C++ classes behind the C descriptors, and the macro that defines a plugin:
//
//   class MyModel : public lora_host::Model { ... };
//   const lh_model my_model = lora_host::model<MyModel>("mine", checkpoint_yaml);
//   LORA_HOST_PLUGIN("mine", "1.0.0", "MIT", {LH_MODEL_FACTORY, &my_model})
#pragma once

#include <cstring>
#include <memory>
#include <string_view>

#include "lora_host/graph.hpp"

namespace lora_host {

// A model: constructed from Weights (throws Failure when they do not fit), with a static `int probe(const Weights&)`.
class Model {
 public:
  virtual ~Model() = default;
  virtual const char* recipe() const = 0;
  virtual const char* role(uint32_t index) const = 0;  // nullptr ends the list
  virtual void build(Graph& g, std::string_view role, const Sizes& sizes) const = 0;
};

// Descriptors are constants; the host keeps pointers to them.
template <typename T>
constexpr lh_model model(const char* id, const char* checkpoint) {
  lh_model out{};
  out.struct_size = sizeof(lh_model);
  out.id = id;
  out.checkpoint = checkpoint;
  out.probe = [](const lh_model_ctx* context) noexcept -> int32_t {
    int32_t confidence = 0;
    (void)guarded(*context->api, [&] { confidence = T::probe(Weights(context)); });
    return confidence;
  };
  out.create = [](const lh_model_ctx* context, void** self) noexcept {
    return guarded(*context->api, [&] {
      *self = new Held<Model>{context->api, std::make_unique<T>(Weights(context))};
    });
  };
  out.destroy = [](void* self) noexcept { delete &Held<Model>::of(self); };
  out.recipe = [](void* self) noexcept {
    return Held<Model>::of(self).text([](const Model& model) { return model.recipe(); });
  };
  out.role = [](void* self, uint32_t index) noexcept {
    return Held<Model>::of(self).text([&](const Model& model) { return model.role(index); });
  };
  out.build = [](void* self, const lh_model_ctx* context, lh_graph* graph, const char* role, const lh_attr* sizes,
                 uint32_t count) noexcept {
    return guarded(*graph->api, [&] {
      Graph g(graph, context);
      Held<Model>::of(self).object->build(g, role, Sizes(sizes, count));
    });
  };
  return out;
}

// One line of a plugin's list.
struct Part {
  const char* factory;  // LH_MODEL_FACTORY, ...
  const void* descriptor;
};

inline const void* part_at(const Part* parts, size_t count, const char* factory, uint32_t index) {
  for (size_t i = 0; i < count; ++i)
    if (std::strcmp(parts[i].factory, factory) == 0 && index-- == 0) return parts[i].descriptor;
  return nullptr;
}

// Nothing is kept from init: every handle brings the host's table.
inline lh_status start(const lh_host*, const char*) noexcept { return LH_OK; }
inline void stop() noexcept {}

}  // namespace lora_host

// Defines all that a plugin exports: the symbol lh_plugin and the ELF note. What follows the license are Parts,
// {factory, &descriptor}. The plugin loads in hosts from LH_TARGET_MINOR on.
#define LORA_HOST_PLUGIN(plugin_id, plugin_version, plugin_license, ...)                                          \
  namespace {                                                                                                     \
  static_assert(LH_TARGET_MINOR >= LH_ABI_OLDEST && LH_TARGET_MINOR <= LH_ABI_MINOR,                              \
                "LH_TARGET_MINOR is no minor number that these headers have");                                    \
  constexpr lora_host::Part lora_host_parts[] = {__VA_ARGS__};                                                    \
  const void* lora_host_factory(const char* factory, uint32_t index) {                                            \
    return lora_host::part_at(lora_host_parts, sizeof lora_host_parts / sizeof *lora_host_parts, factory, index); \
  }                                                                                                               \
  LH_ABI_NOTE(LH_TARGET_MINOR);                                                                                   \
  }                                                                                                               \
  extern "C" {                                                                                                    \
  LH_EXPORT extern const lh_plugin_entry lh_plugin;                                                               \
  }                                                                                                               \
  const lh_plugin_entry lh_plugin = {sizeof(lh_plugin_entry), LH_ABI_MAJOR,   LH_TARGET_MINOR,  plugin_id,        \
                                     plugin_version,          plugin_license, lora_host::start, lora_host::stop,  \
                                     lora_host_factory};
